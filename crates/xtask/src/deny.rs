//! `cargo xtask deny`: licences, sources and duplicates of all dependencies, by the rules of
//! `deny.toml`.
//!
//! That is what `cargo deny check licenses bans sources` does, without building a program of 400
//! crates for it.

use crate::metadata::{Package, packages};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The registry that everything comes from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The used part of `deny.toml`.
#[derive(Deserialize)]
struct Rules {
    graph: Graph,
    licenses: Licences,
    bans: Bans,
}

#[derive(Deserialize)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Deserialize)]
struct Licences {
    allow: Vec<String>,
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    allow: Vec<String>,
    #[serde(rename = "crate")]
    name: String,
}

#[derive(Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

#[derive(Deserialize)]
struct Skip {
    #[serde(rename = "crate")]
    spec: String,
}

/// Checks the tree of every target, and says how much was checked.
///
/// # Errors
/// All that the rules do not allow, a line each.
pub fn check(root: &Path) -> Result<String, String> {
    let path = root.join("deny.toml");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let rules: Rules = toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut wrong = BTreeSet::new();
    let mut checked = 0;
    for target in &rules.graph.targets {
        let packages = packages(root, target)?;
        checked = checked.max(packages.len());
        wrong.extend(objections(&rules, &packages));
    }
    if wrong.is_empty() {
        return Ok(format!("{checked} packages: licences, sources and versions are as deny.toml allows"));
    }
    Err(wrong.into_iter().collect::<Vec<_>>().join("\nerror: "))
}

/// Objections to packages.
fn objections(rules: &Rules, packages: &[Package]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        let (name, version) = (package.name.as_str(), package.version.as_str());
        if package.source.as_deref().is_some_and(|source| source != REGISTRY) {
            wrong.push(format!("{name} {version} is not from crates.io"));
        }
        let licence = package.license.as_deref().unwrap_or_default();
        if !allowed(rules, name, licence) {
            wrong.push(format!("{name} {version}: the licence `{licence}` is not allowed"));
        }
        if !rules.bans.skip.iter().any(|skip| names(&skip.spec, name, version)) {
            versions.entry(name).or_default().push(version);
        }
    }
    for (name, versions) in versions.into_iter().filter(|(_, versions)| versions.len() > 1) {
        wrong.push(format!("{name} is there in versions {}", versions.join(", ")));
    }
    let unused = rules.bans.skip.iter().map(|skip| &skip.spec);
    let unused = unused.filter(|spec| !packages.iter().any(|p| names(spec, &p.name, &p.version)));
    wrong.extend(unused.map(|spec| format!("deny.toml skips {spec}, which is not there")));
    wrong
}

/// Returns true if `name@version`, where the version may be the beginning of one, names a package.
fn names(spec: &str, name: &str, version: &str) -> bool {
    let Some((wanted, beginning)) = spec.split_once('@') else { return spec == name };
    let rest = version.strip_prefix(beginning);
    wanted == name && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Returns true if an SPDX expression can be met by what is allowed.
fn allowed(rules: &Rules, name: &str, licence: &str) -> bool {
    let exceptions = rules.licenses.exceptions.iter().filter(|exception| exception.name == name);
    let allowed: BTreeSet<&str> = exceptions
        .flat_map(|exception| &exception.allow)
        .chain(&rules.licenses.allow)
        .map(String::as_str)
        .collect();
    spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX)
        .is_ok_and(|expression| expression.evaluate(|one| allowed.contains(one.to_string().as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str, license: &str) -> Package {
        let package = serde_json::json!({
            "name": name, "version": version, "license": license, "source": REGISTRY, "manifest_path": "", "id": "",
        });
        serde_json::from_value(package).unwrap()
    }

    fn rules() -> Rules {
        let rules = r#"
            [graph]
            targets = []
            [licenses]
            allow = ["MIT", "ISC"]
            exceptions = [{ allow = ["MPL-2.0"], crate = "mozilla" }]
            [bans]
            skip = [{ crate = "twice@0.2", reason = "why" }]
        "#;
        toml::from_str(rules).unwrap()
    }

    #[test]
    fn licences_are_expressions() {
        let rules = rules();
        for good in ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "MIT AND ISC", "(GPL-2.0 OR MIT) AND ISC"] {
            assert!(allowed(&rules, "any", good), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "", "MIT WITH LLVM-exception", "MPL-2.0", "my own"] {
            assert!(!allowed(&rules, "any", bad), "{bad}");
        }
        assert!(allowed(&rules, "mozilla", "MPL-2.0"));
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        let mut packages = vec![package("twice", "0.2.7", "MIT"), package("twice", "0.20.0", "MIT")];
        assert_eq!(objections(&rules(), &packages), [""; 0]);
        packages.push(package("twice", "1.0.0", "MIT"));
        packages.push(package("copyleft", "1.0.0", "GPL-3.0"));
        packages.push(package("wild", "1.0.0", "ISC"));
        packages.last_mut().unwrap().source = Some("git+https://x".into());
        let found = objections(&rules(), &packages);
        assert_eq!(
            found,
            [
                "copyleft 1.0.0: the licence `GPL-3.0` is not allowed",
                "wild 1.0.0 is not from crates.io",
                "twice is there in versions 0.20.0, 1.0.0",
            ]
        );
        assert_eq!(objections(&rules(), &[]), ["deny.toml skips twice@0.2, which is not there"]);
    }
}
