//! Declarations in `terrace-ggml/src/pin` by hand, read from its Rust, in the words of C++.

use std::collections::BTreeMap;
use std::path::Path;
use syn::{
    Attribute, Expr, Fields, FnArg, ForeignItem, GenericArgument, Item, PathArguments, ReturnType, Type,
};

#[derive(Debug)]
pub struct Function {
    pub name: String,
    /// Its type.
    pub ty: String,
    pub place: String,
}

#[derive(Clone, Debug)]
pub struct Structure {
    /// Its name in C.
    pub name: String,
    pub fields: Vec<Field>,
    pub place: String,
}

/// A field of a structure.
#[derive(Clone, Debug)]
pub struct Field {
    pub name: String,
    pub ty: String,
    pub place: String,
}

#[derive(Debug)]
pub struct Number {
    /// Its name in C; in Rust, if its documentation names none.
    pub name: String,
    pub value: i64,
    pub place: String,
}

/// All of a folder.
#[derive(Debug, Default)]
pub struct Declared {
    pub functions: Vec<Function>,
    pub structures: Vec<Structure>,
    /// The same structures in releases other than the pinned one, and versions of the interface that have a layout.
    pub known: Vec<Structure>,
    pub known_versions: Vec<i64>,
    /// Those of llama.cpp.
    pub numbers: Vec<Number>,
    /// Every integer constant, by its name in Rust.
    pub constants: BTreeMap<String, i64>,
}

/// A file of Rust, and how it is named in messages.
struct Source<'a> {
    shown: &'a str,
    text: &'a str,
}

impl Declared {
    /// Reads `abi.rs`, `calls.rs`, `numbers.rs` and `scheduler.rs` of a folder, which is `shown` in messages.
    ///
    /// # Errors
    /// What cannot be read, or be said in C++.
    pub fn read(folder: &Path, shown: &str) -> Result<Self, String> {
        let mut all = Self::default();
        for file in ["abi.rs", "calls.rs", "numbers.rs", "scheduler.rs"] {
            let (path, shown) = (folder.join(file), format!("{shown}/{file}"));
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{shown}: {error}"))?;
            all.add(&Source { shown: &shown, text: &text }).map_err(|reason| format!("{shown}: {reason}"))?;
        }
        let mut others = Self::default();
        let read = |file: &str| {
            std::fs::read_to_string(folder.join(file)).map_err(|error| format!("{shown}/{file}: {error}"))
        };
        let hosts = Source { shown: &format!("{shown}/hosts.rs"), text: &read("hosts.rs")? };
        others.add(&hosts).map_err(|reason| format!("{shown}/hosts.rs: {reason}"))?;
        all.known = others.structures;
        // `(3, true, true, false) => Some(Self::Three),`
        let version = |line: &str| line.trim().strip_prefix('(')?.split_once(',')?.0.parse().ok();
        let layouts = read("layout.rs")?;
        let of_layouts = layouts.lines().filter(|line| line.contains("=> Some(Self::"));
        all.known_versions = of_layouts.filter_map(version).collect();
        Ok(all)
    }

    fn add(&mut self, source: &Source<'_>) -> Result<(), String> {
        let file = syn::parse_file(source.text).map_err(|error| error.to_string())?;
        let mut names = Names::default();
        for item in &file.items {
            match item {
                Item::Struct(item) => {
                    if let Some(c) = documented(&item.attrs, "struct ") {
                        names.structures.insert(item.ident.to_string(), c);
                    }
                }
                Item::Type(item) => drop(names.aliases.insert(item.ident.to_string(), (*item.ty).clone())),
                _ => {}
            }
        }
        for item in &file.items {
            match item {
                Item::Struct(item) if names.structures.contains_key(&item.ident.to_string()) => {
                    let (rust, start) = (item.ident.to_string(), format!("pub struct {} {{", item.ident));
                    let Fields::Named(fields) = &item.fields else {
                        return Err(format!("{rust} has no fields"));
                    };
                    let of = |field: &syn::Field| -> Result<Field, String> {
                        let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
                        let place = source.place_after(&start, &format!("pub {name}:"));
                        let name = name.trim_start_matches("r#").to_owned();
                        Ok(Field { ty: names.ty(&field.ty)?, name, place })
                    };
                    self.structures.push(Structure {
                        name: names.structures[&rust].clone(),
                        fields: fields.named.iter().map(of).collect::<Result<_, _>>()?,
                        place: source.place_after(&start, &start),
                    });
                }
                Item::ForeignMod(module) => self.foreign(source, &names, &module.items)?,
                Item::Macro(item) if item.mac.path.is_ident("calls") => {
                    let text = format!("unsafe extern \"C\" {{ {} }}", item.mac.tokens);
                    let module: syn::ItemForeignMod =
                        syn::parse_str(&text).map_err(|error| error.to_string())?;
                    self.foreign(source, &names, &module.items)?;
                }
                Item::Const(item) => {
                    let Some(value) = integer(&item.expr) else { continue };
                    let rust = item.ident.to_string();
                    if let Some(name) = documented(&item.attrs, "") {
                        let place = source.place_after("", &format!("const {rust}:"));
                        self.numbers.push(Number { name, value, place });
                    }
                    self.constants.insert(rust, value);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds functions, apart from Terrace's own.
    fn foreign(&mut self, source: &Source<'_>, names: &Names, items: &[ForeignItem]) -> Result<(), String> {
        for item in items {
            let ForeignItem::Fn(item) = item else { continue };
            let name = item.sig.ident.to_string();
            if name.starts_with("terrace_") {
                continue;
            }
            let typed = item.sig.inputs.iter().filter_map(|input| match input {
                FnArg::Typed(typed) => Some(names.ty(&typed.ty)),
                FnArg::Receiver(_) => None,
            });
            let arguments = typed.collect::<Result<Vec<_>, _>>()?;
            let ty = names.function(&item.sig.output, &arguments)?;
            let place = source.place_after("", &format!("fn {name}("));
            self.functions.push(Function { name, ty, place });
        }
        Ok(())
    }
}

impl Source<'_> {
    /// `file:line` of the first line with a text, after one with another text.
    fn place_after(&self, start: &str, text: &str) -> String {
        let mut lines = self.text.lines().enumerate().skip_while(|(_, line)| !line.contains(start));
        let at = lines.find(|(_, line)| line.contains(text)).map_or(0, |(at, _)| at);
        format!("{}:{}", self.shown, at + 1)
    }
}

/// Names of a file that C++ does not know.
#[derive(Default)]
struct Names {
    /// Names in C, by those in Rust.
    structures: BTreeMap<String, String>,
    aliases: BTreeMap<String, Type>,
}

impl Names {
    /// A type in C++: `fn` is a pointer to a function, `pointer` one to something else.
    fn ty(&self, ty: &Type) -> Result<String, String> {
        match ty {
            Type::Ptr(pointer) => {
                let to = self.ty(&pointer.elem)?;
                Ok(match pointer.const_token {
                    Some(_) => format!("pointer<std::add_const_t<{to}>>"),
                    None => format!("pointer<{to}>"),
                })
            }
            Type::BareFn(function) => {
                let arguments: Result<Vec<_>, _> =
                    function.inputs.iter().map(|one| self.ty(&one.ty)).collect();
                self.function(&function.output, &arguments?)
            }
            Type::Path(path) => {
                let last = path.path.segments.last().ok_or("a type without a name")?;
                let name = last.ident.to_string();
                if let (true, PathArguments::AngleBracketed(inner)) = (name == "Option", &last.arguments)
                    && let Some(GenericArgument::Type(inner)) = inner.args.first()
                {
                    return self.ty(inner);
                }
                if let Some(ty) = self.aliases.get(&name) {
                    return self.ty(ty);
                }
                let c = match name.as_str() {
                    "c_void" => "void",
                    "c_char" => "char",
                    "c_int" => "int",
                    "usize" => "size_t",
                    "u8" => "uint8_t",
                    "i32" => "int32_t",
                    "u32" => "uint32_t",
                    "i64" => "int64_t",
                    "u64" => "uint64_t",
                    "f32" => "float",
                    // Also the name of a function.
                    "ggml_backend_dev_type" => "enum ggml_backend_dev_type",
                    other => self.structures.get(other).map_or(other, String::as_str),
                };
                Ok(c.to_owned())
            }
            _ => Err("a type that is neither a pointer nor a name".into()),
        }
    }

    fn function(&self, output: &ReturnType, arguments: &[String]) -> Result<String, String> {
        let output = match output {
            ReturnType::Default => "void".to_owned(),
            ReturnType::Type(_, ty) => self.ty(ty)?,
        };
        Ok(format!("fn<{}>", [&[output], arguments].concat().join(", ")))
    }
}

/// The first name in backquotes of an item's documentation, if it begins so; of numbers, if it is one of C.
fn documented(attributes: &[Attribute], prefix: &str) -> Option<String> {
    let text = attributes.iter().find_map(|attribute| {
        let Ok(value) = attribute.meta.require_name_value() else { return None };
        let Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &value.value else { return None };
        value.path.is_ident("doc").then(|| text.value())
    })?;
    let name = text.split('`').nth(1)?.strip_prefix(prefix)?.to_owned();
    let of_c = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    (!prefix.is_empty() || name.chars().all(of_c)).then_some(name)
}

fn integer(expr: &Expr) -> Option<i64> {
    let Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(number), .. }) = expr else { return None };
    number.base10_parse().ok()
}
