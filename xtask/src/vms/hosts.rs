//! Hosts on which `rma-bench` runs: machines, and this computer in the namespace of the bridge,
//! over UDP.

use std::{
    fs,
    io::pipe,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::{
    error::{Setup, Trouble},
    lines::Lines,
    network::Network,
};

/// The subcommands of `rma-bench` that run on hosts.
pub(super) const SERVE: &str = "serve";
pub(super) const VERIFY: &str = "verify";

/// The test of networks, which runs in a machine.
pub(super) const NETWORKS: &str = "networks";

/// Whether a line that a machine says is a program's.
pub(super) fn is_program_line(line: &str) -> bool {
    [SERVE, VERIFY, NETWORKS].contains(&line.split(' ').next().unwrap_or_default())
}

/// A host, and the programs that run there.
pub(super) trait Host {
    /// For messages.
    fn name(&self) -> String;

    /// Starts a subcommand of `rma-bench`. One of each kind runs at a time.
    fn start(&mut self, program: &'static str, arguments: &[String]) -> Result<(), Trouble>;

    /// The next line that it prints, `exit-status N` at its end.
    fn line(&mut self, program: &'static str) -> Result<String, Trouble>;

    /// Sends it a signal.
    fn signal(&mut self, program: &'static str, signal: &'static str) -> Result<(), Trouble>;

    /// The grant that `serve` has written, as one line.
    fn grant(&mut self) -> Result<String, Trouble>;

    /// Puts a grant where `verify` finds it.
    fn put_grant(&mut self, grant: &str) -> Result<(), Trouble>;

    /// Returns the path of grants on this host.
    fn grant_path(&self) -> String;
}

/// This computer, in a namespace.
#[derive(Debug)]
pub(super) struct Here {
    netns: String,
    rma_bench: PathBuf,
    grant: PathBuf,
    running: Vec<(&'static str, Running)>,
}

/// A process, killed on drop.
#[derive(Debug)]
struct Running {
    child: Child,
    lines: Lines,
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended by itself is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Here {
    /// In the namespace of `network`; grants are in `folder`.
    pub(super) fn new(network: &Network, rma_bench: &Path, folder: &Path) -> Self {
        Self {
            netns: network.name().to_owned(),
            rma_bench: rma_bench.to_owned(),
            grant: folder.join("here.json"),
            running: Vec::new(),
        }
    }

    /// Returns the output of its programs.
    pub(super) fn consoles(&self) -> String {
        let mut text = String::new();
        for (program, running) in &self.running {
            text.push_str(&format!("--- this computer: rma-bench {program}\n"));
            for line in &running.lines.heard {
                text.push_str(&format!("    {line}\n"));
            }
        }
        text
    }

    fn file(&self, doing: &'static str) -> impl FnOnce(std::io::Error) -> Setup {
        let path = self.grant.clone();
        move |source| Setup::File { doing, path, source }
    }
}

impl Host for Here {
    fn name(&self) -> String {
        "this computer".to_owned()
    }

    fn start(&mut self, program: &'static str, arguments: &[String]) -> Result<(), Trouble> {
        let start = |source| Setup::Start { program: "setpriv".into(), source };
        let (reader, writer) = pipe().map_err(start)?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "ip", "netns", "exec", &self.netns])
            .arg(&self.rma_bench)
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(writer.try_clone().map_err(start)?)
            .stderr(writer);
        let child = command.spawn().map_err(start)?;
        // It holds the ends that are written to.
        drop(command);
        let lines = Lines::of(&self.name(), reader);
        self.running.retain(|(name, _)| *name != program);
        self.running.push((program, Running { child, lines }));
        Ok(())
    }

    fn line(&mut self, program: &'static str) -> Result<String, Trouble> {
        let host = self.name();
        let mut programs = self.running.iter_mut();
        let Some((_, running)) = programs.find(|(name, _)| *name == program) else {
            return Err(Trouble::Ended { host, waiting_for: program.to_owned() });
        };
        if let Some(line) = running.lines.next(program)? {
            return Ok(line);
        }
        let status = running.child.wait().ok().and_then(|status| status.code());
        Ok(format!("exit-status {}", status.map_or("of a signal".into(), |code| code.to_string())))
    }

    fn signal(&mut self, program: &'static str, signal: &'static str) -> Result<(), Trouble> {
        for (_, running) in self.running.iter().filter(|(name, _)| *name == program) {
            let pid = running.child.id().to_string();
            super::kernels::run(Command::new("kill").args([&format!("-{signal}"), &pid]))?;
        }
        Ok(())
    }

    fn grant(&mut self) -> Result<String, Trouble> {
        let text = fs::read_to_string(&self.grant).map_err(self.file("reading"))?;
        Ok(text.lines().collect())
    }

    fn put_grant(&mut self, grant: &str) -> Result<(), Trouble> {
        fs::write(&self.grant, grant).map_err(self.file("writing"))?;
        let mode = fs::Permissions::from_mode(0o600);
        Ok(fs::set_permissions(&self.grant, mode).map_err(self.file("setting the mode of"))?)
    }

    fn grant_path(&self) -> String {
        self.grant.to_string_lossy().into_owned()
    }
}
