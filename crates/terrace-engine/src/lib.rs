//! Here is a prompt: give me tokens.

mod chat;
