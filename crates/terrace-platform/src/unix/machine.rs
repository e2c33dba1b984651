pub fn name() -> Option<String> {
    rustix::system::uname().nodename().to_str().ok().map(str::to_owned)
}
