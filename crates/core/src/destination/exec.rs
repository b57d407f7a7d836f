//! Program destinations: the command, its arguments and environment.
//!
//! Which programs may run is decided by the server setting `allow_exec`, not by the author of a
//! destination. The engine checks it at every attempt.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Component, Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_types::secret::{Env, Secret, SecretError, SecretRef, digest_parts};

/// Maximum number of words of a command, and maximum number of environment variables.
pub const WORDS_MAX: usize = 64;

/// Longest word of a command, in bytes.
const WORD_BYTES_MAX: usize = 4096;

/// The program settings of a destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecSpec {
    /// Absolute path of the program, and its arguments. No shell is involved.
    #[schemars(length(min = 1, max = WORDS_MAX))]
    pub command: Vec<String>,
    /// Environment variables, in addition to those that describe the event.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, SecretRef>,
}

/// Why program settings are invalid. No text contains the value of a variable.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecSpecError {
    #[error("command must name a program and have at most {WORDS_MAX} words")]
    Words,
    #[error("command: a word contains a NUL byte or is longer than {WORD_BYTES_MAX} bytes")]
    Word,
    #[error(
        "command: `{0}` must be an absolute path without `.` and `..`, such as /opt/hooks/act; PATH is not searched"
    )]
    Path(String),
    #[error("env may have at most {WORDS_MAX} variables")]
    Variables,
    #[error(
        "env: `{0}` is not a valid variable name; use letters, digits and underscores, not starting with a digit"
    )]
    Name(String),
    #[error("env: `{0}` is set by the gateway")]
    Reserved(String),
    #[error("env: `{0}` can make a program run other code; set it inside the program")]
    Unsafe(String),
    #[error("env: the value of `{0}` contains a NUL byte")]
    Value(String),
    #[error("env: `{0}`: {1}")]
    Secret(String, SecretError),
}

/// A checked command.
#[derive(Clone)]
pub struct ExecConfig {
    /// Absolute path.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Environment variables.
    pub env: Vec<(String, Secret)>,
}

/// Compares variables by digest, because secrets cannot be compared directly.
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

/// Leaves out the values of variables.
impl fmt::Debug for ExecConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        let Self { program, arguments, .. } = self;
        f.debug_struct("ExecConfig")
            .field("program", program)
            .field("arguments", arguments)
            .field("env", &names)
            .finish()
    }
}

impl ExecSpec {
    /// Checks the command and resolves the variables through `env`.
    pub fn build(&self, env: Env<'_>) -> Result<ExecConfig, ExecSpecError> {
        let (program, arguments) = match self.command.split_first() {
            Some(program_and_arguments) if self.command.len() <= WORDS_MAX => program_and_arguments,
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
        let env = self.env.iter().map(|(name, value)| build_variable(name, value, env));
        Ok(ExecConfig {
            program: PathBuf::from(program),
            arguments: arguments.to_vec(),
            env: env.collect::<Result<_, _>>()?,
        })
    }
}

/// Whether a path is absolute, without `.` and `..`, and names a file.
pub fn is_full_path(path: impl AsRef<Path>) -> bool {
    let path = path.as_ref();
    let text = path.as_os_str().as_encoded_bytes();
    // `components` skips a `.` in the middle, so check the text.
    let is_plain = |part: &[u8]| part != b"." && part != b"..";
    path.is_absolute()
        && text.split(|byte| *byte == b'/').all(is_plain)
        && path.components().any(|part| matches!(part, Component::Normal(_)))
}

fn build_variable(
    name: &str,
    value: &SecretRef,
    env: Env<'_>,
) -> Result<(String, Secret), ExecSpecError> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() || !name.bytes().all(is_word) {
        return Err(ExecSpecError::Name(name.to_owned()));
    }
    if name.starts_with("SUREHOOK_") {
        return Err(ExecSpecError::Reserved(name.to_owned()));
    }
    if is_unsafe_variable(name) {
        return Err(ExecSpecError::Unsafe(name.to_owned()));
    }
    let value =
        value.resolve(env).map_err(|error| ExecSpecError::Secret(name.to_owned(), error))?;
    if value.expose().contains(&0) {
        return Err(ExecSpecError::Value(name.to_owned()));
    }
    Ok((name.to_owned(), value))
}

/// Variables that make the loader, a shell, an interpreter or a common tool run other code. The author of a
/// destination may choose arguments of an allowed program, but not another program. The list cannot be
/// complete: an allowed program must not trust its environment.
fn is_unsafe_variable(name: &str) -> bool {
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
    const PREFIXES: [&str; 26] = [
        "LD_", "DYLD_", "BASH_", "MALLOC_", "PYTHON", "PERL", "RUBY", "GEM_", "BUNDLE_", "NODE_",
        "NPM_", "DENO_", "BUN_", "PHP", "LUA_", "GUILE_", "ERL_", "ELIXIR_", "DOTNET_", "CORECLR_",
        "COR_", "GIT_", "SSH_", "XDG_", "OPENSSL_", "CURL_",
    ];
    let name = name.to_ascii_uppercase();
    NAMES.contains(&name.as_str()) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn build(json_spec: Value) -> Result<ExecConfig, ExecSpecError> {
        let spec: ExecSpec = serde_json::from_value(json_spec).unwrap();
        spec.build(&|name| (name == "TOKEN").then(|| "canary".to_owned()))
    }

    #[test]
    fn command_is_built_with_arguments_and_variables() {
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
    fn invalid_command_is_rejected_with_reason() {
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
    fn unsafe_and_reserved_variables_are_rejected() {
        let name = |name: &str| ExecSpecError::Name(name.to_owned());
        let unsafe_name = |name: &str| ExecSpecError::Unsafe(name.to_owned());
        let cases = [
            ("", name("")),
            ("1A", name("1A")),
            ("A-B", name("A-B")),
            ("A=B", name("A=B")),
            ("BASH_FUNC_ls%%", name("BASH_FUNC_ls%%")),
            ("SUREHOOK_EVENT_ID", ExecSpecError::Reserved("SUREHOOK_EVENT_ID".to_owned())),
            ("LD_PRELOAD", unsafe_name("LD_PRELOAD")),
            ("ld_preload", unsafe_name("ld_preload")),
            ("PATH", unsafe_name("PATH")),
            ("BASH_ENV", unsafe_name("BASH_ENV")),
            ("PYTHONPATH", unsafe_name("PYTHONPATH")),
            ("NODE_OPTIONS", unsafe_name("NODE_OPTIONS")),
            ("PERL5OPT", unsafe_name("PERL5OPT")),
            ("GIT_SSH_COMMAND", unsafe_name("GIT_SSH_COMMAND")),
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
