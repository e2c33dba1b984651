//! The page's files, which are part of the program.

pub struct Asset {
    /// Its path below `/page/`.
    pub path: &'static str,
    pub bytes: &'static [u8],
}

impl Asset {
    /// Its type, by the end of its name.
    pub fn content_type(&self) -> &'static str {
        match self.path.rsplit_once('.').map(|(_, end)| end) {
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        }
    }
}

macro_rules! assets {
    ($($path:literal)*) => { &[$(Asset { path: $path, bytes: include_bytes!($path) }),*] };
}

/// All files but the page itself.
pub const ASSETS: &[Asset] = assets![
    "icon.svg"
    "main.js"
    "chat/answers.js"
    "chat/composer.js"
    "chat/conversation.js"
    "chat/facts.js"
    "chat/fields.js"
    "chat/library.js"
    "chat/notice.js"
    "chat/pictures.js"
    "chat/pieces.js"
    "chat/running.js"
    "chat/scroll.js"
    "chat/settings.js"
    "chat/sidebar.js"
    "chat/storage.js"
    "chat/thoughts.js"
    "chat/thread.js"
    "chat/tools.js"
    "chat/turn.js"
    "chat/welcome.js"
    "markdown/blocks.js"
    "markdown/code.js"
    "markdown/emphasis.js"
    "markdown/entities.js"
    "markdown/inlines.js"
    "markdown/links.js"
    "markdown/show.js"
    "shared/buttons.js"
    "shared/dom.js"
    "shared/format.js"
    "shared/frame.js"
    "shared/http.js"
    "shared/icons.js"
    "shared/layout.js"
    "shared/login.js"
    "shared/server.js"
    "shared/status.js"
    "shared/theme.js"
    "style/base.css"
    "style/chat.css"
    "style/layout.css"
    "style/prose.css"
    "style/settings.css"
    "style/tiers.css"
    "tiers/cells.js"
    "tiers/chart.js"
    "tiers/experts.js"
    "tiers/gauges.js"
    "tiers/grid.js"
    "tiers/lanes.js"
    "tiers/metrics.js"
    "tiers/plan.js"
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Component, Path, PathBuf};

    fn text(asset: &Asset) -> &'static str {
        str::from_utf8(asset.bytes).unwrap()
    }

    /// Joins paths, without `.` and `..`.
    fn joined(base: &Path, to: &str) -> String {
        let mut path = PathBuf::new();
        for part in base.join(to).components() {
            match part {
                Component::ParentDir => assert!(path.pop(), "{to}"),
                Component::CurDir => {}
                other => path.push(other),
            }
        }
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn all_files_are_there() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/admin/page");
        let mut found = BTreeSet::new();
        for dir in ["", "chat", "shared", "style", "tiers", "markdown"] {
            for file in fs::read_dir(here.join(dir)).unwrap().map(|file| file.unwrap().path()) {
                let name = file.strip_prefix(&here).unwrap().to_str().unwrap().to_owned();
                if file.is_file() && !name.ends_with(".rs") && !name.ends_with(".html") {
                    found.insert(name);
                }
            }
        }
        let known: BTreeSet<String> = ASSETS.iter().map(|asset| asset.path.to_owned()).collect();
        assert_eq!(known, found);
    }

    #[test]
    fn modules_find_each_other() {
        let names: BTreeSet<&str> = ASSETS.iter().map(|asset| asset.path).collect();
        let mut imports = 0;
        for asset in ASSETS.iter().filter(|asset| asset.path.ends_with(".js")) {
            let statements = text(asset).lines().filter(|line| line.starts_with("import "));
            for line in statements {
                let from = line.rsplit('"').nth(1).unwrap();
                let path = joined(Path::new(asset.path).parent().unwrap(), from);
                assert!(names.contains(path.as_str()), "{}: {line}", asset.path);
                imports += 1;
            }
        }
        assert!(imports > 50);
    }

    #[test]
    fn what_scripts_look_for_is_on_the_page() {
        let page = include_str!("index.html");
        for asset in ASSETS.iter().filter(|asset| asset.path.ends_with(".js")) {
            for id in text(asset).split("at(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(page.contains(&format!("id=\"{id}\"")), "{}: {id}", asset.path);
            }
        }
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere_and_no_html_is_parsed() {
        for asset in ASSETS {
            let own = text(asset).replace("http://www.w3.org/2000/svg", "");
            for refused in [
                "http://",
                "https://",
                "@import",
                "url(",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "eval(",
            ] {
                assert!(!own.contains(refused), "{}: {refused}", asset.path);
            }
        }
    }
}
