//! The model in the arguments of a llama.cpp program.

use std::ffi::OsString;
use std::path::PathBuf;
use terrace_cli::source::hub::{Hub, RemoteModel};

/// Model that the program will load, and the option that names it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The model's first file, by its path.
    pub file: Option<PathBuf>,
    /// The repository of a model on the hub: `owner/repo[:tag]`.
    pub repo: Option<String>,
    /// The file in that repository.
    pub repo_file: Option<String>,
    /// Tokens of the context; `None` means that the program decides.
    pub context: Option<u32>,
    /// Most tokens per graph.
    pub ubatch: Option<u32>,
    /// Types of the keys and of the values, by ggml's names.
    pub types: [Option<String>; 2],
}

/// An option: its spellings, and its variable.
type Option_ = (&'static [&'static str], &'static str);

const FILE: Option_ = (&["-m", "--model"], "LLAMA_ARG_MODEL");
const REPO: Option_ = (&["-hf", "-hfr", "--hf-repo"], "LLAMA_ARG_HF_REPO");
const REPO_FILE: Option_ = (&["-hff", "--hf-file"], "LLAMA_ARG_HF_FILE");
const CONTEXT: Option_ = (&["-c", "--ctx-size"], "LLAMA_ARG_CTX_SIZE");
const UBATCH: Option_ = (&["-ub", "--ubatch-size"], "LLAMA_ARG_UBATCH");
const KEYS: Option_ = (&["-ctk", "--cache-type-k"], "LLAMA_ARG_CACHE_TYPE_K");
const VALUES: Option_ = (&["-ctv", "--cache-type-v"], "LLAMA_ARG_CACHE_TYPE_V");

impl Named {
    /// Reads them from the arguments, and variables for what these do not say. llama-bench takes
    /// lists: of more than one model there is no plan.
    pub fn of(arguments: &[OsString], variable: impl Fn(&str) -> Option<OsString>, lists: bool) -> Self {
        let value = |(spellings, name): Option_| {
            let is_it = |word: &OsString| spellings.iter().any(|spelling| word == spelling);
            let last = arguments.iter().rposition(is_it);
            let given = last.and_then(|at| arguments.get(at + 1).cloned());
            given.or_else(|| variable(name).filter(|value| !value.is_empty()))
        };
        let text = |option| value(option).and_then(|value| value.into_string().ok());
        let number = |option| text(option)?.parse().ok().filter(|&number: &u32| number > 0);
        let one = |value: &OsString| !lists || !value.to_string_lossy().contains(',');
        Self {
            file: value(FILE).filter(one).map(PathBuf::from),
            repo: text(REPO),
            repo_file: text(REPO_FILE),
            context: number(CONTEXT),
            ubatch: number(UBATCH),
            types: [text(KEYS), text(VALUES)],
        }
    }

    /// The local file of the model on the hub, where the cache that llama.cpp shares with other
    /// clients of it has one, and it can be told which.
    pub fn cached(&self) -> Option<PathBuf> {
        let repo = self.repo.as_ref()?;
        if terrace_cli::environment::var_os("LLAMA_CACHE").is_some_and(|folder| !folder.is_empty()) {
            // A cache of its own.
            return None;
        }
        let (id, tag) = repo.split_once(':').map_or((&repo[..], None), |(id, tag)| (id, Some(tag)));
        let hub = Hub::from_environment().ok()?;
        let repo = RemoteModel::parse(id).ok()?;
        let file = match &self.repo_file {
            Some(name) => name.clone(),
            None => choose(&hub.cached_names(&repo), tag)?.clone(),
        };
        hub.cached(&RemoteModel { file: Some(file), ..repo })
    }
}

/// The file that llama.cpp chooses from a repository's: the first of the type that the tag names, by
/// default Q4_K_M, then Q8_0, then the first of all.
fn choose<'a>(names: &'a [String], tag: Option<&str>) -> Option<&'a String> {
    let others = ["mmproj", "mtp-", "imatrix"];
    let first = |name: &&String| !name.contains("-of-") || name.contains("-00001-of-");
    let is_model = |name: &&String| {
        name.ends_with(".gguf") && !others.iter().any(|other| name.contains(other)) && first(name)
    };
    let mut names: Vec<&String> = names.iter().filter(is_model).collect();
    names.sort();
    let of_type = |ty: &str| {
        let ty = ty.to_lowercase();
        let has = |name: &&&String| {
            let name = name.to_lowercase();
            ["-", "."].iter().any(|end| name.contains(&format!("{ty}{end}")))
        };
        names.iter().find(has).copied()
    };
    match tag {
        Some(tag) => of_type(tag),
        None => of_type("Q4_K_M").or_else(|| of_type("Q8_0")).or_else(|| names.first().copied()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(arguments: &[&str], variables: &[(&str, &str)], lists: bool) -> Named {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let get = |name: &str| Some(variables.iter().find(|(known, _)| *known == name)?.1.into());
        Named::of(&arguments, get, lists)
    }

    #[test]
    fn arguments_are_read_as_llama_cpp_does() {
        let all = named(
            &["-m", "a.gguf", "--port", "1", "-c", "4096", "-ctk", "q8_0", "-ub", "64", "-m", "b.gguf"],
            &[("LLAMA_ARG_CTX_SIZE", "1")],
            false,
        );
        assert_eq!(all.file, Some("b.gguf".into()));
        assert_eq!((all.context, all.ubatch), (Some(4096), Some(64)));
        assert_eq!(all.types, [Some("q8_0".into()), None]);
        let variables = [("LLAMA_ARG_MODEL", "c.gguf"), ("LLAMA_ARG_CTX_SIZE", "0")];
        let variables = named(&["-m"], &variables, false);
        assert_eq!((variables.file, variables.context), (Some("c.gguf".into()), None));
        let hub = named(&["-hf", "owner/repo:Q8_0", "-hff", "m.gguf"], &[], false);
        assert_eq!(
            (hub.repo.as_deref(), hub.repo_file.as_deref()),
            (Some("owner/repo:Q8_0"), Some("m.gguf"))
        );
        assert_eq!(named(&["-m", "a.gguf,b.gguf"], &[], true).file, None);
        assert_eq!(named(&["-m", "a,b.gguf"], &[], false).file, Some("a,b.gguf".into()));
        assert_eq!(named(&[], &[], false), Named::default());
    }

    #[test]
    fn a_file_is_chosen_by_its_type() {
        let names = [
            "m-IQ2_XS.gguf",
            "m-Q8_0-00002-of-00002.gguf",
            "m-Q8_0-00001-of-00002.gguf",
            "m-Q4_K_M.gguf",
            "mmproj-Q4_K_M.gguf",
            "README.md",
        ];
        let names = names.map(String::from);
        let chosen = |tag| choose(&names, tag).map(String::as_str);
        assert_eq!(chosen(None), Some("m-Q4_K_M.gguf"));
        assert_eq!(chosen(Some("q8_0")), Some("m-Q8_0-00001-of-00002.gguf"));
        assert_eq!(chosen(Some("F16")), None);
        assert_eq!(choose(&names[..1], None).map(String::as_str), Some("m-IQ2_XS.gguf"));
        assert_eq!(choose(&[], None), None);
    }
}
