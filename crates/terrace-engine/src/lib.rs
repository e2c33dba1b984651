//! Here is a prompt: give me tokens.
