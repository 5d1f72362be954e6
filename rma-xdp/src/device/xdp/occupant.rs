//! The occupants of what this host wants: the XDP program that is on an interface, the socket that
//! has a queue, and the processes behind them.
//!
//! Asked when the kernel has refused, for the error's words. What is not found is not said: a
//! process may be in another namespace, and may have gone by now.

use core::fmt;
use std::fs;

use aya::programs::{links::LinkType, loaded_links, loaded_programs};
use rustix::fs::getxattr;

use crate::device::net::{Layer, layers, socket_on};

/// An XDP program that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttachedProgram {
    /// The interface that it is on.
    pub interface: Box<str>,
    /// Its id, as `bpftool prog` shows it.
    pub id: u32,
    /// Its name, empty if the kernel does not tell.
    pub name: Box<str>,
    /// The place where it runs.
    pub place: ProgramPlace,
    /// The BPF link that it is attached by. Without one it was attached as `ip link` does.
    pub link: Option<ProgramLink>,
}

/// The place where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramPlace {
    /// In the driver.
    Native,
    /// In the network stack.
    Generic,
    /// On the device itself.
    Offloaded,
}

/// The link that keeps a program attached that `ip link` does not detach.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramLink {
    /// Its id, as `bpftool link` shows it.
    pub id: u32,
    /// The process that holds it. `None` if no process that can be seen does.
    pub holder: Option<Process>,
}

/// The process that holds what is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The name of its program.
    pub name: Box<str>,
}

impl ProgramPlace {
    /// Returns the keyword of `ip link set` for it.
    const fn keyword(self) -> &'static str {
        match self {
            Self::Native => "xdpdrv",
            Self::Generic => "xdpgeneric",
            Self::Offloaded => "xdpoffload",
        }
    }
}

impl fmt::Display for ProgramPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Offloaded => "offloaded",
        })
    }
}

impl Process {
    fn is_this(&self) -> bool {
        self.pid == std::process::id()
    }

    /// As the owner of a socket that is in the way.
    pub(super) fn as_owner(&self) -> String {
        let next = if self.is_this() { "drop the host that has it" } else { "stop that process" };
        format!(" of {self}: {next}")
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, name } = self;
        if self.is_this() {
            return f.write_str("this process");
        }
        write!(f, "process {pid} ({name})")
    }
}

impl fmt::Display for AttachedProgram {
    /// Describes the program, in parentheses, to stand behind its interface, and how to be rid of
    /// it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, id, name, place, link } = self;
        write!(f, "({place}, id {id}, name {name:?}")?;
        let Some(ProgramLink { id, holder }) = link else {
            let keyword = place.keyword();
            return write!(
                f,
                "): stop what attached it, or detach it with `ip link set dev {interface} {keyword} off`"
            );
        };
        match holder {
            Some(holder) if holder.is_this() => {
                write!(f, ", by BPF link {id}, which this process holds): drop that host first")
            }
            Some(holder) => {
                write!(f, ", by BPF link {id}, which {holder} holds): stop that process")
            }
            None => write!(
                f,
                ", by BPF link {id}): stop what attached it, or detach it with `bpftool link detach id {id}`"
            ),
        }
    }
}

/// The place of the program that keeps others off an interface, and its id, where the kernel tells.
#[derive(Debug)]
pub(super) enum InTheWay {
    /// On the interface.
    Here(Option<AttachedProgram>),
    /// On an interface on top of it.
    OnTop(Option<AttachedProgram>),
}

impl InTheWay {
    /// Returns the program because of which the kernel lets no other onto the interface of this
    /// index.
    pub(super) fn of(index: u32) -> Self {
        let layers = layers().unwrap_or_default();
        let Some(own) = layers.iter().find(|layer| layer.index == index) else {
            return Self::Here(None);
        };
        match program_of(own) {
            Some(program) => Self::Here(Some(program)),
            None => {
                let on_top = layers.iter().filter(|layer| layer.is_on(own));
                Self::OnTop(on_top.filter_map(program_of).next())
            }
        }
    }
}

fn program_of(layer: &Layer) -> Option<AttachedProgram> {
    let programs = [
        (ProgramPlace::Native, layer.programs.native),
        (ProgramPlace::Generic, layer.programs.generic),
        (ProgramPlace::Offloaded, layer.programs.offloaded),
    ];
    let (place, id) = programs.into_iter().find_map(|(place, id)| Some((place, id?)))?;
    let info = loaded_programs().filter_map(Result::ok).find(|info| info.id() == id);
    let name = info.as_ref().and_then(|info| info.name_as_str()).unwrap_or_default().into();
    let mut links = loaded_links().filter_map(Result::ok);
    // A program may be on several interfaces; then one of its links is as good as another to find
    // who attaches it.
    let link = links.find(|link| {
        link.program_id() == id && link.link_type().is_ok_and(|it| it == LinkType::Xdp)
    });
    let link = link.map(|link| {
        let line = format!("link_id:\t{}\n", link.id());
        let holder = process_that(|fd| {
            fd.target.starts_with("anon_inode:bpf")
                && fd.info().is_some_and(|it| it.contains(&line))
        });
        ProgramLink { id: link.id(), holder }
    });
    Some(AttachedProgram { interface: layer.name.clone(), id, name, place, link })
}

/// Returns the process that has a socket on this queue.
pub(super) fn queue_holder(index: u32, queue: u32) -> Option<Process> {
    match socket_on(index, queue) {
        Ok(inode) => {
            let target = format!("socket:[{}]", inode?);
            process_that(|fd| fd.target == target)
        }
        // Many kernels cannot tell.
        Err(_) => only_other_with_sockets(),
    }
}

/// The process of this network namespace that has AF_XDP sockets, besides this one, if there is
/// just one.
fn only_other_with_sockets() -> Option<Process> {
    let here = fs::read_link("/proc/thread-self/ns/net").ok()?;
    let has_one = |fd: &Descriptor<'_>| {
        fd.pid != std::process::id()
            && fd.is_xdp_socket()
            && fs::read_link(format!("/proc/{}/ns/net", fd.pid)).is_ok_and(|it| it == here)
    };
    let first = process_that(has_one)?;
    let second = process_that(|fd| fd.pid != first.pid && has_one(fd));
    second.is_none().then_some(first)
}

/// A descriptor of a process, as `/proc` shows it.
struct Descriptor<'a> {
    pid: u32,
    number: &'a str,
    /// The thing that it stands for.
    target: &'a str,
}

impl Descriptor<'_> {
    fn is_xdp_socket(&self) -> bool {
        let mut protocol = [0_u8; 16];
        let path = format!("/proc/{}/fd/{}", self.pid, self.number);
        self.target.starts_with("socket:")
            && getxattr(path, "system.sockprotoname", &mut protocol[..])
                .is_ok_and(|len| protocol[..len].starts_with(b"XDP"))
    }

    fn info(&self) -> Option<String> {
        fs::read_to_string(format!("/proc/{}/fdinfo/{}", self.pid, self.number)).ok()
    }
}

/// The first process that has such a descriptor.
fn process_that(mut holds: impl FnMut(&Descriptor<'_>) -> bool) -> Option<Process> {
    let number = |entry: fs::DirEntry| entry.file_name().into_string().ok();
    let pids = fs::read_dir("/proc").ok()?.flatten();
    let pid = pids.filter_map(|entry| number(entry)?.parse().ok()).find(|&pid: &u32| {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        descriptors.flatten().any(|entry| {
            let Ok(target) = fs::read_link(entry.path()) else { return false };
            let (Some(target), Some(number)) = (target.to_str(), number(entry)) else {
                return false;
            };
            holds(&Descriptor { pid, number: &number, target })
        })
    })?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(Process { pid, name: name.trim_end().into() })
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsRawFd, unix::fs::MetadataExt};

    use super::*;

    fn program(place: ProgramPlace, link: Option<ProgramLink>) -> String {
        AttachedProgram { interface: "eth9".into(), id: 7, name: "pass".into(), place, link }
            .to_string()
    }

    #[test]
    fn the_advice_follows_from_how_a_program_is_attached() {
        for (place, command) in [
            (ProgramPlace::Native, "`ip link set dev eth9 xdpdrv off`"),
            (ProgramPlace::Generic, "`ip link set dev eth9 xdpgeneric off`"),
            (ProgramPlace::Offloaded, "`ip link set dev eth9 xdpoffload off`"),
        ] {
            let text = program(place, None);
            assert!(text.contains(command) && text.contains("id 7, name \"pass\""), "{text}");
        }
    }

    #[test]
    fn no_ip_link_command_is_told_for_what_a_link_keeps_attached() {
        let link = |holder| program(ProgramPlace::Native, Some(ProgramLink { id: 12, holder }));
        let own = Process { pid: std::process::id(), name: "me".into() };
        let other = Process { pid: u32::MAX, name: "xdpsock".into() };
        let texts = [link(None), link(Some(own)), link(Some(other))];
        assert!(texts.iter().all(|text| !text.contains("`ip ")), "{texts:?}");
        assert!(texts[0].contains("`bpftool link detach id 12`"), "{texts:?}");
        assert!(texts[1].contains("this process holds): drop that host first"), "{texts:?}");
        assert!(texts[2].contains("process 4294967295 (xdpsock) holds): stop that"), "{texts:?}");
    }

    #[test]
    fn the_process_that_has_a_descriptor_is_found() {
        let file = fs::File::open("/proc/self/status").unwrap();
        let inode = file.metadata().unwrap().ino();
        let number = file.as_raw_fd().to_string();
        let holder = process_that(|fd| {
            let is_it = fd.pid == std::process::id() && fd.number == number;
            is_it && fd.info().is_some_and(|it| it.contains(&format!("ino:\t{inode}\n")))
        });
        assert_eq!(holder.map(|it| it.is_this()), Some(true));
        assert_eq!(process_that(|fd| fd.target == "socket:[0]"), None);
    }
}
