//! The lab: two fresh network namespaces joined by a veth pair, for demos, benches and tests.
//!
//! It builds and removes networks; it sends nothing itself. It is not a place for a machine's own
//! interfaces: everything happens inside namespaces that this module made.
//!
//! Invariant: what a [`Netns`] or a [`Lab`] made is gone once it is dropped, and a thread that
//! entered a namespace is back where it came from once its [`Entered`] guard is dropped. A killed
//! process cannot drop anything: names carry its process id, and [`Lab::sweep`] removes what a
//! process left that no longer runs. Signals are the caller's: turn them into an ordinary return.

use std::{
    ffi::OsStr,
    fmt,
    fs::{self, File},
    io,
    marker::PhantomData,
    net::{Ipv4Addr, Ipv6Addr},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use rustix::{
    thread::{CapabilitySet, LinkNameSpaceType, move_into_link_name_space},
    time::{ClockId, clock_gettime},
};

/// The folder in which iproute2 keeps named network namespaces.
const NETNS_FOLDER: &str = "/run/netns";

/// How long [`Lab::new`] waits for carrier and addresses. A veth pair takes milliseconds; a machine
/// that needs longer than this is stuck.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why a lab could not be built or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// Namespaces belong to root.
    #[error(
        "network namespaces need root, and the effective user id is {euid}: run the command with sudo"
    )]
    NotRoot {
        /// The effective user id of this process.
        euid: u32,
    },
    /// Root without what makes it root, as in most containers.
    #[error(
        "network namespaces, AF_XDP and its program need the capability {missing}, which this process lacks: run it outside a container, or in a privileged one"
    )]
    MissingCapability {
        /// The first one that is missing.
        missing: &'static str,
    },
    /// iproute2 could not be started at all.
    #[error(
        "the `ip` command could not be started ({source}): install it with `apt-get install iproute2`"
    )]
    IpNotStarted {
        /// The error of the system.
        source: io::Error,
    },
    /// iproute2 ran and refused.
    #[error("`{command}` failed with {status}: {stderr}")]
    IpFailed {
        /// The command line, to repeat by hand.
        command: Box<str>,
        /// Its exit status.
        status: process::ExitStatus,
        /// Its standard error, trimmed.
        stderr: Box<str>,
    },
    /// The output of iproute2 lacks what was asked for.
    #[error("`{command}` printed no {wanted}: {output:?}")]
    IpOutput {
        /// The command line, to repeat by hand.
        command: Box<str>,
        /// The thing looked for.
        wanted: &'static str,
        /// The output.
        output: Box<str>,
    },
    /// A namespace tag would not make a name that can be swept.
    #[error("namespace tag {tag:?} must be 1 to 32 of the characters a-z, 0-9 and -")]
    Tag {
        /// The tag as given.
        tag: Box<str>,
    },
    /// A namespace file could not be opened.
    #[error("{path}: {source}; is /proc mounted, and was the namespace removed by someone else?")]
    Open {
        /// The file.
        path: Box<str>,
        /// The error of the system.
        source: io::Error,
    },
    /// A setting of a namespace could not be written.
    #[error("writing {value} to {path} in namespace {netns}: {source}")]
    Sysctl {
        /// The setting.
        path: Box<str>,
        /// The value that was refused.
        value: &'static str,
        /// The namespace.
        netns: Box<str>,
        /// The error of the system.
        source: io::Error,
    },
    /// The kernel did not let the thread change its namespace.
    #[error("entering network namespace {netns}: {source}; this needs CAP_SYS_ADMIN")]
    Enter {
        /// The namespace.
        netns: Box<str>,
        /// The error of the system.
        source: io::Error,
    },
    /// The links did not come up in time.
    #[error(
        "{interface} in namespace {netns} was not ready after {} s: see `ip -n {netns} addr show {interface}`",
        waited.as_secs()
    )]
    NotReady {
        /// The namespace.
        netns: Box<str>,
        /// The interface.
        interface: &'static str,
        /// How long it was given.
        waited: Duration,
    },
}

/// A fresh network namespace, deleted on drop.
///
/// The kernel keeps a deleted namespace alive as long as a thread or a socket is in it.
#[derive(Debug)]
pub struct Netns {
    name: Box<str>,
}

impl Netns {
    /// Makes a namespace named `rma-TAG-PID-N`, with its loopback interface up and without
    /// duplicate address detection, so that IPv6 addresses are usable at once.
    ///
    /// # Errors
    /// [`LabError::NotRoot`], [`LabError::Tag`], or what the `ip` command or the kernel refused.
    pub fn create(tag: &str) -> Result<Self, LabError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        if tag.is_empty() || tag.len() > 32 || !tag.bytes().all(allowed) {
            return Err(LabError::Tag { tag: tag.into() });
        }
        require_root()?;
        // The process id and a counter: parallel tests and stale runs never collide.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rma-{tag}-{}-{number}", process::id());
        ip(&["netns", "add", &name])?;
        // From here on a failure deletes the namespace again.
        let netns = Self { name: name.into() };
        netns.ip(&["link", "set", "lo", "up"])?;
        netns.sysctl("ipv6/conf/all/accept_dad", "0")?;
        netns.sysctl("ipv6/conf/default/accept_dad", "0")?;
        // Nobody answers router solicitations here; they would only add frames to measurements.
        netns.sysctl("ipv6/conf/default/router_solicitations", "0")?;
        Ok(netns)
    }

    /// The name, as `ip netns list` shows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Moves the calling thread, and no other, into this namespace until the guard is dropped.
    /// Sockets and threads made meanwhile belong to this namespace and stay in it.
    ///
    /// Guards of one thread must be dropped in reverse order, as local variables are.
    ///
    /// # Errors
    /// [`LabError::Open`] if the namespace is gone, [`LabError::Enter`] if the kernel refuses.
    pub fn enter(&self) -> Result<Entered<'_>, LabError> {
        // thread-self: /proc/self would always be the main thread's namespace.
        let home = open(Path::new("/proc/thread-self/ns/net"))?;
        let target = open(&Path::new(NETNS_FOLDER).join(&*self.name))?;
        move_into_link_name_space(target.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| LabError::Enter { netns: self.name.clone(), source: errno.into() })?;
        Ok(Entered { home, _thread: PhantomData })
    }

    /// Runs `ip -n NAME ARGS…` and gives its standard output.
    ///
    /// # Errors
    /// [`LabError::IpNotStarted`] or [`LabError::IpFailed`] with the command's own words.
    pub fn ip<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String, LabError> {
        let mut all: Vec<&OsStr> = vec![OsStr::new("-n"), OsStr::new(&*self.name)];
        all.extend(args.iter().map(AsRef::as_ref));
        ip(&all)
    }

    /// Runs a program in this namespace, as `ip netns exec NAME ARGS…`, and gives its standard
    /// output.
    ///
    /// # Errors
    /// [`LabError::IpNotStarted`] or [`LabError::IpFailed`] with the program's own words.
    pub fn exec<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String, LabError> {
        let mut all = ["netns", "exec", &*self.name].map(OsStr::new).to_vec();
        all.extend(args.iter().map(AsRef::as_ref));
        ip(&all)
    }

    /// Writes a network setting of this namespace, named below `/proc/sys/net/`.
    ///
    /// # Errors
    /// [`LabError::Sysctl`] if there is no such setting or it refuses the value.
    pub fn sysctl(&self, setting: &str, value: &'static str) -> Result<(), LabError> {
        // /proc/sys/net shows the namespace of the thread that opens it.
        let _entered = self.enter()?;
        let path = Path::new("/proc/sys/net").join(setting);
        fs::write(&path, value).map_err(|source| LabError::Sysctl {
            path: path.to_string_lossy().into(),
            value,
            netns: self.name.clone(),
            source,
        })
    }

    /// The hardware address of an interface of this namespace.
    ///
    /// # Errors
    /// Those of [`Netns::ip`], and [`LabError::IpOutput`] for an interface that is not Ethernet.
    pub fn interface_mac(&self, interface: &str) -> Result<[u8; 6], LabError> {
        let args = ["-o", "link", "show", "dev", interface];
        let output = self.ip(&args)?;
        let mut words = output.split_whitespace().skip_while(|word| *word != "link/ether");
        words.nth(1).and_then(parse_mac).ok_or_else(|| LabError::IpOutput {
            command: command_line(&args),
            wanted: "Ethernet address",
            output: output.into(),
        })
    }

    /// Sets the MTU of an interface of this namespace, in bytes of IP packet.
    ///
    /// # Errors
    /// Those of [`Netns::ip`]: no such interface, or a value its driver refuses.
    pub fn set_mtu(&self, interface: &str, mtu: u32) -> Result<(), LabError> {
        self.ip(&["link", "set", "dev", interface, "mtu", &mtu.to_string()]).map(drop)
    }

    /// Whether the interface is up with carrier and none of its IPv6 addresses is tentative.
    fn is_ready(&self, interface: &str) -> Result<bool, LabError> {
        let link = self.ip(&["-o", "link", "show", "dev", interface])?;
        // Flags stand between angle brackets, separated by commas.
        let flags = link.split(['<', '>']).nth(1).unwrap_or_default();
        if !flags.split(',').any(|flag| flag == "LOWER_UP") {
            return Ok(false);
        }
        Ok(self.ip(&["-6", "-o", "addr", "show", "dev", interface, "tentative"])?.is_empty())
    }

    /// Waits until `interface` is up with carrier and none of its IPv6 addresses is tentative. Each
    /// look starts a process, so the loop does not spin.
    ///
    /// # Errors
    /// [`LabError::NotReady`] after ten seconds, and those of [`Netns::ip`].
    pub fn wait_ready(&self, interface: &'static str) -> Result<(), LabError> {
        let deadline = monotonic() + READY_TIMEOUT;
        while !self.is_ready(interface)? {
            if monotonic() > deadline {
                return Err(LabError::NotReady {
                    netns: self.name.clone(),
                    interface,
                    waited: READY_TIMEOUT,
                });
            }
            thread::yield_now();
        }
        Ok(())
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        if let Err(error) = ip(&["netns", "delete", &*self.name]) {
            // The next run's sweep tries again; a destructor can only say so.
            eprintln!("rma-lab: {error}");
        }
    }
}

/// The calling thread, inside a namespace. Not `Send`: `setns` moves a thread, not a value.
#[must_use = "the thread leaves the namespace when this guard is dropped"]
pub struct Entered<'ns> {
    home: File,
    _thread: PhantomData<(&'ns Netns, *mut ())>,
}

impl fmt::Debug for Entered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entered").field("home", &self.home).finish()
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let home = self.home.as_fd();
        if move_into_link_name_space(home, Some(LinkNameSpaceType::Network)).is_err() {
            // A thread left in the wrong namespace would spoil whatever it does next, possibly on
            // the machine's own interfaces: stop, do not go on.
            process::abort();
        }
    }
}

/// The shape of a [`Lab`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct LabConfig {
    /// MTU of both ends, in bytes of IP packet: 1280 (the least IPv6 takes) to 65535.
    pub mtu: u32,
    /// Receive queues, and as many transmit queues, of each end. At least 1.
    pub queues: u32,
    /// Whether the ends have the addresses [`Lab::A_V4`] and [`Lab::B_V4`].
    pub ipv4: bool,
    /// Whether the ends have the addresses [`Lab::A_V6`] and [`Lab::B_V6`].
    pub ipv6: bool,
}

impl Default for LabConfig {
    /// Ethernet's usual MTU, one queue, both address families.
    fn default() -> Self {
        Self { mtu: 1500, queues: 1, ipv4: true, ipv6: true }
    }
}

/// Two namespaces, `a` and `b`, joined by a veth pair named [`Lab::INTERFACE`] at both ends.
///
/// Offloads stay as the driver sets them: veth gives up segmentation by itself once an XDP program
/// is attached, and frames that the kernel sends keep partial UDP checksums, so a reader of raw
/// frames must not verify those.
#[derive(Debug)]
pub struct Lab {
    a: Netns,
    b: Netns,
}

impl Lab {
    /// The name of the interface, the same at both ends.
    pub const INTERFACE: &'static str = "rma0";
    /// IPv4 address of `a`, from the block set aside for documentation.
    pub const A_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    /// IPv4 address of `b`.
    pub const B_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
    /// Prefix length of the IPv4 addresses.
    pub const V4_PREFIX: u8 = 24;
    /// IPv6 address of `a`, a unique local one.
    pub const A_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    /// IPv6 address of `b`.
    pub const B_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
    /// Prefix length of the IPv6 addresses.
    pub const V6_PREFIX: u8 = 64;

    /// Builds the lab and waits until both ends have carrier and usable addresses.
    /// Removes the debris of killed runs first.
    ///
    /// # Errors
    /// [`LabError::NotRoot`] without root, [`LabError::NotReady`] if the links do not come up, or
    /// what the `ip` command refused. Nothing is left behind.
    pub fn new(config: &LabConfig) -> Result<Self, LabError> {
        require_root()?;
        Self::sweep()?;
        let lab = Self { a: Netns::create("a")?, b: Netns::create("b")? };
        lab.link(config)?;
        Ok(lab)
    }

    /// Makes the pair of interfaces, and waits until both ends have carrier and usable addresses.
    /// For those who have deleted one end, and with it the other.
    ///
    /// # Errors
    /// The refusal of the `ip` command, as when they are there, or [`LabError::NotReady`].
    pub fn link(&self, config: &LabConfig) -> Result<(), LabError> {
        let (mtu, queues) = (config.mtu.to_string(), config.queues.to_string());
        let sized = ["mtu", &mtu, "numrxqueues", &queues, "numtxqueues", &queues];
        let add = ["link", "add", Self::INTERFACE];
        let peer = ["type", "veth", "peer", "name", Self::INTERFACE, "netns", self.b.name()];
        if !config.ipv6 {
            for netns in [&self.a, &self.b] {
                netns.sysctl("ipv6/conf/default/disable_ipv6", "1")?;
            }
        }
        self.a.ip(&[&add[..], &sized, &peer, &sized].concat())?;
        for (netns, v4, v6) in
            [(&self.a, Self::A_V4, Self::A_V6), (&self.b, Self::B_V4, Self::B_V6)]
        {
            if config.ipv4 {
                let address = format!("{v4}/{}", Self::V4_PREFIX);
                netns.ip(&["addr", "add", &address, "dev", Self::INTERFACE])?;
            }
            if config.ipv6 {
                let address = format!("{v6}/{}", Self::V6_PREFIX);
                netns.ip(&["addr", "add", &address, "dev", Self::INTERFACE, "nodad"])?;
            }
            netns.ip(&["link", "set", "dev", Self::INTERFACE, "up"])?;
        }
        for netns in [&self.a, &self.b] {
            netns.wait_ready(Self::INTERFACE)?;
        }
        Ok(())
    }

    /// The namespace of [`Lab::A_V4`] and [`Lab::A_V6`].
    #[must_use]
    pub fn a(&self) -> &Netns {
        &self.a
    }

    /// The namespace of [`Lab::B_V4`] and [`Lab::B_V6`].
    #[must_use]
    pub fn b(&self) -> &Netns {
        &self.b
    }

    /// Deletes the namespaces of processes that no longer run and gives their number.
    ///
    /// Only names of the form `rma-TAG-PID-N` are looked at. Namespaces of a process in another PID
    /// namespace look abandoned from here: do not share `/run/netns` between containers.
    ///
    /// # Errors
    /// [`LabError::Open`] if the folder cannot be read, or what `ip netns delete` refused.
    pub fn sweep() -> Result<usize, LabError> {
        let entries = match fs::read_dir(NETNS_FOLDER) {
            Ok(entries) => entries,
            // No namespace was ever made on this machine.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(source) => return Err(LabError::Open { path: NETNS_FOLDER.into(), source }),
        };
        let mut swept = 0;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(maker_pid) else { continue };
            if Path::new("/proc").join(pid.to_string()).exists() {
                continue;
            }
            match ip(&[OsStr::new("netns"), OsStr::new("delete"), &name]) {
                Ok(_) => swept += 1,
                // Another process swept it first.
                Err(_) if !entry.path().exists() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(swept)
    }
}

/// Runs `ip ARGS…` in the calling thread's namespace and gives its standard output.
///
/// # Errors
/// [`LabError::IpNotStarted`] or [`LabError::IpFailed`] with the command's own words.
pub fn ip<S: AsRef<OsStr>>(args: &[S]) -> Result<String, LabError> {
    let output = Command::new("ip")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| LabError::IpNotStarted { source })?;
    if !output.status.success() {
        return Err(LabError::IpFailed {
            command: command_line(args),
            status: output.status,
            stderr: String::from_utf8_lossy(&output.stderr).trim().into(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Root, before the first `ip` command would fail with less clear words.
fn require_root() -> Result<(), LabError> {
    let euid = rustix::process::geteuid();
    if !euid.is_root() {
        return Err(LabError::NotRoot { euid: euid.as_raw() });
    }
    // A kernel that does not tell lets the `ip` command say what is wrong.
    let Ok(capabilities) = rustix::thread::capabilities(None) else { return Ok(()) };
    let needed = [
        (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN"),
        (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
        (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
    ];
    match needed.into_iter().find(|&(set, _)| !capabilities.effective.contains(set)) {
        Some((_, missing)) => Err(LabError::MissingCapability { missing }),
        None => Ok(()),
    }
}

/// The command as a person would type it, for messages.
fn command_line<S: AsRef<OsStr>>(args: &[S]) -> Box<str> {
    let mut line = String::from("ip");
    for arg in args {
        line.push(' ');
        line.push_str(&arg.as_ref().to_string_lossy());
    }
    line.into()
}

/// The process id in a name that [`Netns::create`] made; `None` for every other name.
fn maker_pid(name: &str) -> Option<u32> {
    let (rest, number) = name.strip_prefix("rma-")?.rsplit_once('-')?;
    let (_tag, pid) = rest.rsplit_once('-')?;
    number.parse::<u32>().ok()?;
    pid.parse().ok()
}

/// Six octets from `aa:bb:cc:dd:ee:ff`.
fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for octet in &mut mac {
        *octet = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

fn open(path: &Path) -> Result<File, LabError> {
    File::open(path).map_err(|source| LabError::Open {
        path: PathBuf::from(path).to_string_lossy().into(),
        source,
    })
}

/// Time since boot; deadlines only.
fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_lab_makes_are_swept() {
        assert_eq!(maker_pid("rma-a-123-0"), Some(123));
        assert_eq!(maker_pid("rma-two-words-123-45"), Some(123));
        for other in ["eth0", "rma-", "rma-a", "rma-a-123", "rma-a-x-0", "rma-a-1-x", "x-a-1-0"] {
            assert_eq!(maker_pid(other), None, "{other}");
        }
    }

    #[test]
    fn a_hardware_address_has_exactly_six_octets() {
        assert_eq!(parse_mac("02:00:00:00:00:ff"), Some([2, 0, 0, 0, 0, 255]));
        for wrong in ["", "02:00:00:00:00", "02:00:00:00:00:ff:00", "02:00:00:00:00:100"] {
            assert_eq!(parse_mac(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_tag_that_could_not_be_swept_is_refused() {
        for tag in ["", "Upper", "with space", "a/b", &"x".repeat(33)] {
            assert!(matches!(Netns::create(tag), Err(LabError::Tag { .. })), "{tag}");
        }
    }

    #[test]
    fn a_failing_command_says_what_was_run_and_why_it_failed() {
        let error = ip(&["link", "show", "dev", "no-such-link"]).unwrap_err().to_string();
        assert!(error.contains("`ip link show dev no-such-link`"), "{error}");
        assert!(error.contains("does not exist"), "{error}");
    }

    #[test]
    #[ignore = "needs root: cargo xtask test"]
    fn lab_is_ready_when_built_and_gone_when_dropped() {
        let config = LabConfig { mtu: 3400, queues: 2, ..LabConfig::default() };
        let lab = Lab::new(&config).unwrap();
        let names = [lab.a().name().to_owned(), lab.b().name().to_owned()];
        assert_ne!(
            lab.a().interface_mac(Lab::INTERFACE).unwrap(),
            lab.b().interface_mac(Lab::INTERFACE).unwrap()
        );
        {
            let _inside = lab.a().enter().unwrap();
            // Sockets made here reach the peer's kernel: bound, not just configured.
            std::net::UdpSocket::bind((Lab::A_V4, 0)).unwrap();
            std::net::UdpSocket::bind((Lab::A_V6, 0)).unwrap();
        }
        // 192.0.2.1 is no address of the namespace we came from.
        assert!(std::net::UdpSocket::bind((Lab::A_V4, 0)).is_err());
        let details = lab.b().ip(&["-d", "link", "show", "dev", Lab::INTERFACE]).unwrap();
        assert!(details.contains("mtu 3400") && details.contains("numrxqueues 2"), "{details}");
        lab.b().set_mtu(Lab::INTERFACE, 1500).unwrap();
        drop(lab);
        for name in names {
            assert!(!Path::new(NETNS_FOLDER).join(name).exists());
        }
    }

    #[test]
    #[ignore = "needs root: cargo xtask test"]
    fn sweep_removes_what_a_dead_process_left_and_nothing_else() {
        // The process id of a child that has been waited for is free again.
        let mut child = Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let stale = format!("rma-stale-{dead}-0");
        ip(&["netns", "add", &stale]).unwrap();
        let alive = Netns::create("alive").unwrap();
        Lab::sweep().unwrap();
        assert!(!Path::new(NETNS_FOLDER).join(stale).exists());
        assert!(Path::new(NETNS_FOLDER).join(alive.name()).exists());
    }
}
