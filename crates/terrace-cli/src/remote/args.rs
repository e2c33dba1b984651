//! Which server is asked.

use clap::{ArgAction, Args};

/// Which server is asked.
#[derive(Debug, Clone, Args)]
pub struct ServerArgs {
    /// Address of the server
    #[arg(long, value_name = "URL", env = "TERRACE_SERVER", default_value = "http://127.0.0.1:8080")]
    pub server: String,
    /// Key that the server asks for; of several, the first one is sent
    #[arg(long, value_name = "KEY", env = "TERRACE_API_KEY", hide_env_values = true, value_delimiter = ',', action = ArgAction::Append)]
    pub api_key: Vec<String>,
}
