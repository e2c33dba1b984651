use std::time::Duration;

pub fn time() -> Duration {
    Duration::ZERO
}

pub fn name() -> String {
    String::new()
}

pub fn largest_cache() -> u64 {
    0
}

pub fn permit_tiles() -> bool {
    false
}
