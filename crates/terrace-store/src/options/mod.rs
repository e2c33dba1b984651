//! Options of reading and of the slots. Each struct is a group of options of the command line: a field has the
//! name of its option, and its documentation is the option's help.

mod cache;
mod io;
mod paths;
mod replicas;

pub use cache::{CacheOptions, Lookahead};
pub use io::IoOptions;
pub use paths::{PathList, separated};
pub use replicas::ReplicaOptions;
