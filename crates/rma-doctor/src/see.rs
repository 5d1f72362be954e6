//! Looking at this machine: a snapshot of it. Nothing is changed by it.

mod ethtool;
mod machine;
mod route;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    thread::NanosleepRelativeResult,
    time::{ClockId, Timespec, clock_gettime},
};

use crate::snapshot::{Files, Interface, SESSION_PORT, Seen, Snapshot, VERSION};

/// How far apart two readings of counters are.
const BETWEEN: Duration = Duration::from_secs(1);

/// The subject of a snapshot, and the place of `/proc` and `/sys`.
#[derive(Clone, Debug)]
#[must_use]
pub struct Look {
    /// The interface; `None`: all that have an address.
    pub interface: Option<String>,
    /// The directory in which `proc` and `sys` are.
    pub root: PathBuf,
    /// Whether counters are read twice, which takes a second.
    pub twice: bool,
    /// UDP ports and the TCP port that are wanted.
    pub ports: [u16; 2],
}

impl Look {
    /// Looks at an interface, or all that have an address.
    pub fn at(interface: Option<&str>) -> Self {
        let ports = [rma_xdp::config::DEFAULT_PORT, SESSION_PORT];
        Self { interface: interface.map(str::to_owned), root: "/".into(), twice: true, ports }
    }

    /// Takes a snapshot, in the network namespace of the calling thread. What cannot be seen has
    /// the reason in its place.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let reader = Reader::new(&self.root);
        let start = monotonic();
        let before = route::look(self.interface.as_deref());
        let mut machine = machine::look(&reader, self);
        let mut interfaces = match before {
            Ok(interfaces) => interfaces,
            Err(error) => {
                let unseen = match error.kind() {
                    io::ErrorKind::NotFound => error.to_string(),
                    _ => format!("the kernel was not asked over netlink: {error}"),
                };
                let name = self.interface.clone().unwrap_or_default();
                let interface =
                    Interface { name, link: Seen::unseen(&unseen), ..Interface::default() };
                // Without a name there is no interface to tell of, and the machine tells why.
                vec![Interface { addresses: Seen::unseen(unseen), ..interface }]
            }
        };
        ethtool::look(&mut interfaces);
        for interface in &mut interfaces {
            machine::look_at_interface(&reader, interface);
            if let Seen::Value(link) = &mut interface.link
                && let Some(program) = &mut link.program
            {
                program.name = machine::program_name(program.id);
            }
        }
        if self.twice {
            machine::spin(&reader, &mut machine);
            sleep(BETWEEN.saturating_sub(monotonic().saturating_sub(start)));
            route::look_again(&mut interfaces);
        }
        Snapshot { version: VERSION, machine, interfaces }
    }
}

/// The reader of files below a root.
struct Reader {
    root: PathBuf,
    proc: bool,
    sys: bool,
}

impl Reader {
    fn new(root: &Path) -> Self {
        let is_there = |name| fs::read_dir(root.join(name)).is_ok_and(|mut it| it.next().is_some());
        Self { root: root.to_owned(), proc: is_there("proc"), sys: is_there("sys") }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Fails if the file system that the path is of is not mounted.
    fn mounted(&self, path: &str) -> Result<(), String> {
        match path.split('/').next() {
            Some("proc") if !self.proc => Err("/proc is not mounted".into()),
            Some("sys") if !self.sys => Err("/sys is not mounted".into()),
            _ => Ok(()),
        }
    }

    /// A file, of which at most 256 KiB: `None` if it is not there.
    fn read(&self, path: &str) -> Seen<Option<String>> {
        use io::Read;
        const MAX: u64 = 256 * 1024;
        if let Err(why) = self.mounted(path) {
            return Seen::unseen(why);
        }
        let mut bytes = Vec::new();
        let file = fs::File::open(self.path(path));
        match file.and_then(|file| file.take(MAX).read_to_end(&mut bytes)) {
            Ok(_) => Seen::Value(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Seen::Value(None),
            Err(error) => Seen::unseen(format!("/{path}: {error}")),
        }
    }

    fn read_into(&self, files: &mut Files, paths: impl IntoIterator<Item = String>) {
        let read = |path: String| (path.clone(), self.read(&path));
        files.0.extend(paths.into_iter().map(read).collect::<BTreeMap<_, _>>());
    }

    /// The names in a directory, in order; none if it is not there.
    fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else { return Vec::new() };
        let name = |it: io::Result<fs::DirEntry>| it.ok()?.file_name().into_string().ok();
        let mut names: Vec<String> = entries.filter_map(name).collect();
        names.sort();
        names
    }

    /// The last part of what a link points to: `None` if there is no such link.
    fn target(&self, path: &str) -> Seen<Option<String>> {
        if let Err(why) = self.mounted(path) {
            return Seen::unseen(why);
        }
        match fs::read_link(self.path(path)) {
            Ok(to) => Seen::Value(to.file_name().map(|it| it.to_string_lossy().into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Seen::Value(None),
            Err(error) => Seen::unseen(format!("/{path}: {error}")),
        }
    }
}

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs a program, and returns the text that it prints, if it is there and succeeds.
fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null());
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => format!("`{program}` is not installed, which would tell"),
        _ => format!("`{program}` could not be run: {error}"),
    };
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    // Read meanwhile: a program that prints much waits for that.
    let read = |from: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut text = Vec::new();
            from.map(|mut it| it.read_to_end(&mut text));
            text
        })
    };
    let printed = read(child.stdout.take().map(|it| Box::new(it) as _));
    let complained = read(child.stderr.take().map(|it| Box::new(it) as _));
    let end = monotonic() + PATIENCE;
    while child.try_wait().map_err(failed)?.is_none() {
        if monotonic() > end {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("`{program}` does not end"));
        }
        sleep(Duration::from_millis(5));
    }
    let status = child.wait().map_err(failed)?;
    let (printed, complained) =
        (printed.join().unwrap_or_default(), complained.join().unwrap_or_default());
    if !status.success() {
        let text = String::from_utf8_lossy(&complained);
        let line = text.lines().next().unwrap_or_default();
        return Err(format!("`{program} {}` failed: {line}", arguments.join(" ")));
    }
    Ok(String::from_utf8_lossy(&printed).into_owned())
}

fn monotonic() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
    Duration::new(tv_sec.unsigned_abs(), u32::try_from(tv_nsec).unwrap_or_default())
}

fn sleep(time: Duration) {
    let Ok(mut left) = Timespec::try_from(time) else { return };
    while let NanosleepRelativeResult::Interrupted(rest) = rustix::thread::nanosleep(&left) {
        left = rest;
    }
}

#[cfg(test)]
mod tests {
    use rma_lab::{Lab, LabConfig, Scratch};

    use super::*;
    use crate::{State, Wanted, check};

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn look(root: &Path) -> Snapshot {
        let mut look = Look::at(Some("lo"));
        (look.root, look.twice) = (root.to_owned(), false);
        look.snapshot()
    }

    #[test]
    fn without_proc_and_sys_what_they_tell_is_unknown() {
        let root = Scratch::new();
        let findings = check(&look(root.path()), &Wanted::default());
        for id in ["bpf_jit", "lockdown", "idle_states", "isolation", "port", "clock"] {
            let finding = findings.iter().find(|it| it.id == id).unwrap();
            assert_eq!(finding.state, State::Unknown, "{finding:?}");
            assert!(finding.found.contains("is not mounted"), "{finding:?}");
        }
    }

    #[test]
    fn files_are_read_below_the_root_and_one_of_another_namespace_is_not_believed() {
        let root = Scratch::new();
        write(root.path(), "proc/sys/net/core/bpf_jit_enable", "0\n");
        write(root.path(), "sys/class/net/lo/ifindex", "4242\n");
        write(root.path(), "sys/class/net/lo/napi_defer_hard_irqs", "0\n");
        let snapshot = look(root.path());
        let findings = check(&snapshot, &Wanted::default());
        let jit = findings.iter().find(|it| it.id == "bpf_jit").unwrap();
        assert_eq!(jit.state, State::Mend, "{jit:?}");
        let [lo] = &snapshot.interfaces[..] else { panic!("{snapshot:?}") };
        let why = lo.files.text("napi_defer_hard_irqs").unwrap_err();
        assert!(why.0.contains("network namespace"), "{why:?}");
    }

    #[test]
    fn loopback_is_no_ethernet_and_an_interface_that_is_not_there_is_unknown() {
        let root = Scratch::new();
        let findings = check(&look(root.path()), &Wanted::default());
        let kind = findings.iter().find(|it| it.id == "kind").unwrap();
        assert_eq!((kind.state, kind.found.as_str()), (State::Mend, "not Ethernet"));
        let mut look = Look::at(Some("no such"));
        look.twice = false;
        let findings = check(&look.snapshot(), &Wanted::default());
        let link = findings.iter().find(|it| it.id == "link").unwrap();
        assert!(link.state == State::Unknown && link.found.contains("no such"), "{link:?}");
    }

    #[test]
    #[ignore = "needs root: cargo xtask test"]
    fn faults_of_a_veth_pair_are_found() {
        let lab = Lab::new(&LabConfig::default()).unwrap();
        let find = |id: &str| {
            let _inside = lab.a().enter().unwrap();
            let mut look = Look::at(None);
            look.twice = false;
            let snapshot = look.snapshot();
            let [found] = &snapshot.interfaces[..] else { panic!("{:?}", snapshot.interfaces) };
            assert_eq!(found.name, Lab::INTERFACE);
            check(&snapshot, &Wanted::default()).into_iter().find(|it| it.id == id).unwrap()
        };
        let set = |command: &str| {
            lab.a().exec(&command.split(' ').collect::<Vec<_>>()).unwrap();
        };
        assert_eq!(find("link").state, State::Ok);
        assert_eq!(find("xdp_native").state, State::Note);
        assert_eq!(find("gro_generic").state, State::Ok);
        set(&format!("ethtool -K {} rx-gro-list on", Lab::INTERFACE));
        let finding = find("gro_generic");
        assert_eq!(finding.state, State::Mend, "{finding:?}");
        set(&finding.command.unwrap());
        assert_eq!(find("gro_generic").state, State::Ok);
        lab.b().ip(&["link", "set", "dev", Lab::INTERFACE, "down"]).unwrap();
        let finding = find("link");
        assert_eq!((finding.state, finding.found.as_str()), (State::Mend, "up, without carrier"));
    }
}
