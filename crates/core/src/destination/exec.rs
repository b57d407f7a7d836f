//! A destination that is a program on this machine: what it is called with.
//!
//! Which programs may be run at all is not said here, and not by whoever writes a destination: the
//! settings of the server do (`allow_exec`), and the engine looks at every attempt.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Component, Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::secret::{Secret, SecretError, SecretRef, digest_parts};

/// The most words of a command, and the most variables.
pub const WORDS_MAX: usize = 64;

/// The longest word of a command, in bytes.
const WORD_BYTES_MAX: usize = 4096;

/// A program as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecSpec {
    /// The program, by its full path, and its arguments. No shell reads them.
    #[schemars(length(min = 1, max = WORDS_MAX))]
    pub command: Vec<String>,
    /// Variables for it, beside those that tell it about the event.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, SecretRef>,
}

/// A program that cannot be used as it is written. No message holds the value of a variable.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecSpecError {
    /// Nothing to run.
    #[error("command must name a program and have at most {WORDS_MAX} words")]
    Words,
    /// A word that no program can be given.
    #[error("command: a word holds a NUL, or is longer than {WORD_BYTES_MAX} bytes")]
    Word,
    /// A program that depends on where the gateway was started.
    #[error(
        "command: `{0}` is not a full path without `.` and `..`, such as /opt/hooks/act; no PATH is searched"
    )]
    Path(String),
    /// Too many variables.
    #[error("env may have at most {WORDS_MAX} variables")]
    Variables,
    /// A variable without a proper name.
    #[error(
        "env: `{0}` is no name of a variable; use letters, digits and underscores, no digit first"
    )]
    Name(String),
    /// A variable that is ours.
    #[error("env: `{0}` is set by the gateway")]
    Ours(String),
    /// A variable that would run something else.
    #[error("env: `{0}` can make a program run other code than its own; set it in the program")]
    Steers(String),
    /// A value that no variable can have.
    #[error("env: the value of `{0}` holds a NUL")]
    Value(String),
    /// A secret cannot be looked up.
    #[error("env: `{0}`: {1}")]
    Secret(String, SecretError),
}

/// A program as it is meant.
#[derive(Clone)]
pub struct ExecConfig {
    /// The program, by its full path.
    pub program: PathBuf,
    /// What it is given.
    pub arguments: Vec<String>,
    /// Variables, some of them secret.
    pub env: Vec<(String, Secret)>,
}

/// Variables are secrets, which are not compared but by their digest.
impl PartialEq for ExecConfig {
    fn eq(&self, other: &Self) -> bool {
        let env = |exec: &Self| {
            digest_parts(
                exec.env.iter().flat_map(|(name, value)| [name.as_bytes(), value.expose()]),
            )
        };
        self.program == other.program
            && self.arguments == other.arguments
            && env(self) == env(other)
    }
}

impl Eq for ExecConfig {}

/// Arguments are shown like the rest of a spec; the values of variables are not.
impl fmt::Debug for ExecConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        let Self { program, arguments, .. } = self;
        f.debug_struct("Exec")
            .field("program", program)
            .field("arguments", arguments)
            .field("env", &names)
            .finish()
    }
}

impl ExecSpec {
    /// Checks the words and looks the variables up through `env`.
    pub fn build(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<ExecConfig, ExecSpecError> {
        let (program, arguments) = match self.command.split_first() {
            Some(words) if self.command.len() <= WORDS_MAX => words,
            Some(_) | None => return Err(ExecSpecError::Words),
        };
        if self.command.iter().any(|word| word.contains('\0') || word.len() > WORD_BYTES_MAX) {
            return Err(ExecSpecError::Word);
        }
        if !is_full_path(program) {
            return Err(ExecSpecError::Path(program.clone()));
        }
        if self.env.len() > WORDS_MAX {
            return Err(ExecSpecError::Variables);
        }
        let env = self.env.iter().map(|(name, value)| variable(name, value, env));
        Ok(ExecConfig {
            program: PathBuf::from(program),
            arguments: arguments.to_vec(),
            env: env.collect::<Result<_, _>>()?,
        })
    }
}

/// Whether a path means the same wherever one stands, and says where it leads.
pub fn is_full_path(path: impl AsRef<Path>) -> bool {
    let path = path.as_ref();
    let text = path.as_os_str().as_encoded_bytes();
    // `components` passes over a `.` in the middle, so that is looked for in the text.
    let is_plain = |part: &[u8]| part != b"." && part != b"..";
    path.is_absolute()
        && text.split(|byte| *byte == b'/').all(is_plain)
        && path.components().any(|part| matches!(part, Component::Normal(_)))
}

fn variable(
    name: &str,
    value: &SecretRef,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(String, Secret), ExecSpecError> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() || !name.bytes().all(is_word) {
        return Err(ExecSpecError::Name(name.to_owned()));
    }
    if name.starts_with("SUREHOOK_") {
        return Err(ExecSpecError::Ours(name.to_owned()));
    }
    if steers(name) {
        return Err(ExecSpecError::Steers(name.to_owned()));
    }
    let value =
        value.resolve(env).map_err(|error| ExecSpecError::Secret(name.to_owned(), error))?;
    if value.expose().contains(&0) {
        return Err(ExecSpecError::Value(name.to_owned()));
    }
    Ok((name.to_owned(), value))
}

/// Variables by which the loader, a shell, an interpreter or a common tool finds code to run. Whoever
/// may write a destination may choose arguments for a program that was allowed, and not another
/// program. No such list is ever complete: a program that is allowed must not trust its variables.
fn steers(name: &str) -> bool {
    const NAMES: [&str; 28] = [
        "PATH",
        "HOME",
        "SHELL",
        "IFS",
        "ENV",
        "CDPATH",
        "SHELLOPTS",
        "BASHOPTS",
        "PS4",
        "FPATH",
        "ZDOTDIR",
        "TMPDIR",
        "EDITOR",
        "VISUAL",
        "PAGER",
        "BROWSER",
        "GCONV_PATH",
        "GETCONF_DIR",
        "GLIBC_TUNABLES",
        "HOSTALIASES",
        "LOCPATH",
        "NLSPATH",
        "LANGUAGE",
        "RES_OPTIONS",
        "CLASSPATH",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "_JAVA_OPTIONS",
    ];
    const BEGINNINGS: [&str; 26] = [
        "LD_", "DYLD_", "BASH_", "MALLOC_", "PYTHON", "PERL", "RUBY", "GEM_", "BUNDLE_", "NODE_",
        "NPM_", "DENO_", "BUN_", "PHP", "LUA_", "GUILE_", "ERL_", "ELIXIR_", "DOTNET_", "CORECLR_",
        "COR_", "GIT_", "SSH_", "XDG_", "OPENSSL_", "CURL_",
    ];
    let name = name.to_ascii_uppercase();
    NAMES.contains(&name.as_str()) || BEGINNINGS.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn build(written: Value) -> Result<ExecConfig, ExecSpecError> {
        let spec: ExecSpec = serde_json::from_value(written).unwrap();
        spec.build(&|name| (name == "TOKEN").then(|| "canary".to_owned()))
    }

    #[test]
    fn a_program_is_read_with_its_arguments_and_variables() {
        let exec = build(json!({
            "command": ["/opt/hooks/act", "--flag", "a b", ""],
            "env": { "API_TOKEN": "env:TOKEN", "MODE": "canary" },
        }))
        .unwrap();

        assert_eq!(exec, exec.clone());
        let mut other = exec.clone();
        other.env[1].1 = Secret::new("another");
        assert_ne!(exec, other);
        assert_eq!(exec.program, Path::new("/opt/hooks/act"));
        assert_eq!(exec.arguments, ["--flag", "a b", ""]);
        assert_eq!(exec.env[0].0, "API_TOKEN");
        assert_eq!(exec.env[0].1.expose(), b"canary");
        assert!(!format!("{exec:?}").contains("canary"), "{exec:?}");
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_its_reason() {
        let path = |text: &str| ExecSpecError::Path(text.to_owned());
        let cases = [
            (json!([]), ExecSpecError::Words),
            (json!(vec!["/a"; WORDS_MAX + 1]), ExecSpecError::Words),
            (json!(["/a", "b\0c"]), ExecSpecError::Word),
            (json!(["/a", "x".repeat(4097)]), ExecSpecError::Word),
            (json!([""]), path("")),
            (json!(["act"]), path("act")),
            (json!(["./act"]), path("./act")),
            (json!(["/"]), path("/")),
            (json!(["/opt/hooks/../../bin/sh"]), path("/opt/hooks/../../bin/sh")),
            (json!(["/opt/./hooks"]), path("/opt/./hooks")),
            (json!(["/opt/hooks/.."]), path("/opt/hooks/..")),
        ];
        for (command, expected) in cases {
            let error = build(json!({ "command": command })).unwrap_err();
            assert_eq!(error, expected, "case: {command}");
        }
    }

    #[test]
    fn no_variable_steers_a_program_or_speaks_for_the_gateway() {
        let name = |name: &str| ExecSpecError::Name(name.to_owned());
        let steers = |name: &str| ExecSpecError::Steers(name.to_owned());
        let cases = [
            ("", name("")),
            ("1A", name("1A")),
            ("A-B", name("A-B")),
            ("A=B", name("A=B")),
            ("BASH_FUNC_ls%%", name("BASH_FUNC_ls%%")),
            ("SUREHOOK_EVENT_ID", ExecSpecError::Ours("SUREHOOK_EVENT_ID".to_owned())),
            ("LD_PRELOAD", steers("LD_PRELOAD")),
            ("ld_preload", steers("ld_preload")),
            ("PATH", steers("PATH")),
            ("BASH_ENV", steers("BASH_ENV")),
            ("PYTHONPATH", steers("PYTHONPATH")),
            ("NODE_OPTIONS", steers("NODE_OPTIONS")),
            ("PERL5OPT", steers("PERL5OPT")),
            ("GIT_SSH_COMMAND", steers("GIT_SSH_COMMAND")),
        ];
        for (variable, expected) in cases {
            let error = build(json!({ "command": ["/a"], "env": { variable: "x" } })).unwrap_err();
            assert_eq!(error, expected, "case: {variable}");
        }
        let unset = build(json!({ "command": ["/a"], "env": { "A": "env:NOT_THERE" } }));
        assert!(matches!(unset, Err(ExecSpecError::Secret(name, _)) if name == "A"));
        let nul = build(json!({ "command": ["/a"], "env": { "A": "x\0y" } }));
        assert!(matches!(nul, Err(ExecSpecError::Value(name)) if name == "A"));
    }
}
