//! Running cargo, with the command line shown.
//!
//! Not here: what is run, and what its output means.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The reason why a cargo command did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// Cargo, or what it has built, could not be started.
    #[error("cannot run {}: {source}; is it there, and cargo on the PATH?", program.to_string_lossy())]
    Start {
        /// The program.
        program: OsString,
        /// The system's reason.
        source: io::Error,
    },
    /// Cargo's output broke off.
    #[error("the output of `{command}` could not be read")]
    Output {
        /// The command line.
        command: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Cargo ran and failed; what it printed says why.
    #[error("`{command}` failed; its own message is above")]
    Failed {
        /// The command line.
        command: String,
    },
}

/// One run of cargo in the root of the workspace, if no other folder is named.
#[derive(Debug)]
pub(crate) struct Cargo {
    directory: PathBuf,
    arguments: Vec<OsString>,
    /// Set for the run, on top of the environment.
    variables: Vec<(&'static str, OsString)>,
}

impl Cargo {
    pub(crate) fn new<A: AsRef<OsStr>>(arguments: &[A]) -> Self {
        let arguments = arguments.iter().map(|argument| argument.as_ref().to_owned()).collect();
        Self { directory: workspace(), arguments, variables: Vec::new() }
    }

    /// Runs it in a folder of another workspace.
    pub(crate) fn directory(self, directory: PathBuf) -> Self {
        Self { directory, ..self }
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets a variable for the run.
    pub(crate) fn variable(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// Appends `flags` to a variable that holds compiler flags.
    pub(crate) fn flags(mut self, variable: &'static str, flags: &str) -> Self {
        let mut all = env::var_os(variable).unwrap_or_default();
        if !all.is_empty() {
            all.push(" ");
        }
        all.push(flags);
        self.variables.push((variable, all));
        self
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> Result<(), Error> {
        self.show();
        let status = self.command().status().map_err(start_error)?;
        if status.success() { Ok(()) } else { Err(Error::Failed { command: self.line() }) }
    }

    /// Runs it to its end and gives `line` each line that it prints, and the command before them.
    /// Standard output and error come out as one stream, in the order in which they were written.
    /// Gives whether it succeeded.
    pub(crate) fn run_watched(self, mut line: impl FnMut(&str)) -> Result<bool, Error> {
        line(&format!("$ {}", self.line()));
        let output_error = |source| Error::Output { command: self.line(), source };
        let (reader, writer) = io::pipe().map_err(output_error)?;
        let mut command = self.command();
        command.stdout(writer.try_clone().map_err(output_error)?).stderr(writer);
        let mut child = command.spawn().map_err(start_error)?;
        // It holds the ends that are written to: the reading ends when the child's copies are
        // closed.
        drop(command);
        for text in BufReader::new(reader).split(b'\n') {
            // A test may print what is not UTF-8.
            let text = text.map_err(output_error)?;
            let text = String::from_utf8_lossy(&text);
            line(&text);
        }
        Ok(child.wait().map_err(output_error)?.success())
    }

    /// Becomes cargo: signals and the exit status are then between the caller and what cargo runs.
    pub(crate) fn exec(self) -> Error {
        self.show();
        start_error(self.command().exec())
    }

    /// Runs it and returns its output, or `None` if it fails. For questions to cargo that take no
    /// building.
    pub(crate) fn output(self) -> Option<String> {
        let output = self.command().stderr(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then_some(text)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(program());
        command
            .current_dir(&self.directory)
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        // `cargo run` describes xtask in these; a build script that looks at them must not see them
        // change between plain cargo and this.
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" {
                command.env_remove(name);
            }
        }
        // Cargo would look at it instead of `RUSTFLAGS`, which some runs need.
        command.env_remove("CARGO_ENCODED_RUSTFLAGS");
        command
    }

    /// The command line as a person would type it.
    pub(crate) fn line(&self) -> String {
        let mut line = String::new();
        for (name, value) in &self.variables {
            line.push_str(&format!("{name}={} ", quoted(value)));
        }
        line.push_str("cargo");
        for argument in &self.arguments {
            line.push(' ');
            line.push_str(&quoted(argument));
        }
        line
    }

    /// On the standard error: the standard output belongs to what cargo runs.
    fn show(&self) {
        eprintln!("$ {}", self.line());
    }
}

/// The root of the workspace, wherever `cargo xtask` was called from.
pub(crate) fn workspace() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask is a folder of the workspace").to_owned()
}

/// Runs an example that `cargo build` has left.
pub(crate) fn run_example(name: &str) -> Result<(), Error> {
    let program = target_folder().join("debug/examples").join(name);
    let command = program.display().to_string();
    eprintln!("$ {command}");
    let status = Command::new(&program).status();
    let status = status.map_err(|source| Error::Start { program: program.into(), source })?;
    if status.success() { Ok(()) } else { Err(Error::Failed { command }) }
}

/// Returns the folder of cargo's build output.
pub(crate) fn target_folder() -> PathBuf {
    #[derive(serde::Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    let metadata = Cargo::new(&["metadata", "--no-deps", "--format-version=1"]).output();
    let metadata = metadata.and_then(|text| serde_json::from_str::<Metadata>(&text).ok());
    metadata.map_or_else(|| workspace().join("target"), |metadata| metadata.target_directory)
}

/// The cargo that runs this, which need not be the first on the `PATH`.
fn program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn start_error(source: io::Error) -> Error {
    Error::Start { program: program(), source }
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    if word.is_empty() || word.contains([' ', '\'', '"', '$', '*', '`', '\\']) {
        format!("'{}'", word.replace('\'', r"'\''"))
    } else {
        word.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_pasted_into_a_shell() {
        let cargo = Cargo::new(&["test", "--", "it's"]).args(["--exact"]);
        assert_eq!(cargo.line(), r"cargo test -- 'it'\''s' --exact");
    }

    #[test]
    fn no_flags_of_the_caller_hide_those_of_a_run() {
        let command = Cargo::new(&["test"]).flags("RUSTFLAGS", "--cfg loom").command();
        let variables: Vec<_> = command.get_envs().collect();
        assert!(variables.contains(&(OsStr::new("CARGO_ENCODED_RUSTFLAGS"), None)));
        let flags = variables.iter().find(|(name, _)| *name == "RUSTFLAGS").unwrap().1.unwrap();
        assert!(flags.to_str().unwrap().ends_with("--cfg loom"));
    }

    #[test]
    fn the_workspace_is_where_the_root_manifest_is() {
        let manifest = std::fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"));
    }
}
