//! A machine and its interfaces as they were seen, as data.
//!
//! Files of `/proc` and `/sys` are kept as they were read, and understood by the checks: then a
//! file that nobody expected is in a snapshot, and so in a test.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};

/// The version of the format that this crate writes, and the only one that it reads.
pub const VERSION: u32 = 1;

/// The TCP port of keys and sessions, unless another is given.
pub const SESSION_PORT: u16 = 7471;

/// The reason why something was not seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen(pub String);

/// A value, or the reason why it was not seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seen<T> {
    /// It was.
    Value(T),
    /// It was not.
    Unseen(Unseen),
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self::unseen("the snapshot does not have it")
    }
}

impl<T> Seen<T> {
    /// Not seen, for this reason.
    pub fn unseen(why: impl ToString) -> Self {
        Self::Unseen(Unseen(why.to_string()))
    }

    /// The value.
    ///
    /// # Errors
    ///
    /// The reason why there is none.
    pub fn get(&self) -> Result<&T, Unseen> {
        match self {
            Self::Value(value) => Ok(value),
            Self::Unseen(why) => Err(why.clone()),
        }
    }
}

impl<T, E: ToString> From<Result<T, E>> for Seen<T> {
    fn from(result: Result<T, E>) -> Self {
        result.map_or_else(Self::unseen, Self::Value)
    }
}

/// Files by their path, without the root: `None` if there is no such file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Files(pub BTreeMap<String, Seen<Option<String>>>);

impl Files {
    /// The text of a file, without white space at its ends; `None` if there is no such file.
    ///
    /// # Errors
    ///
    /// The reason why it is not known.
    pub fn find(&self, path: &str) -> Result<Option<&str>, Unseen> {
        let seen = self.0.get(path).ok_or_else(|| Unseen(format!("{path} is not here")))?;
        Ok(seen.get()?.as_deref().map(str::trim))
    }

    /// The text of a file that is there.
    ///
    /// # Errors
    ///
    /// The reason why it is not known, which may be that there is no such file.
    pub fn text(&self, path: &str) -> Result<&str, Unseen> {
        self.find(path)?.ok_or_else(|| Unseen(format!("there is no {path}")))
    }

    /// All files whose path ends so, as path and text.
    pub fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = FileText<'a>> {
        self.0.iter().filter(move |(path, _)| path.ends_with(end)).filter_map(|(path, seen)| {
            let text = seen.get().ok()?.as_deref()?.trim();
            Some(FileText { path, text })
        })
    }
}

/// A file that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileText<'a> {
    /// The path, from the root of the file system, without its first slash.
    pub path: &'a str,
    /// The text, without white space at its ends.
    pub text: &'a str,
}

/// A machine and its interfaces at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The version of the format.
    pub version: u32,
    /// All that is seen of no interface in particular.
    #[serde(default)]
    pub machine: Machine,
    /// The interfaces that were asked for.
    #[serde(default)]
    pub interfaces: Vec<Interface>,
}

/// The reason why a text is no snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// It is not one, or it is cut.
    #[error(
        "this is no snapshot of `rma-bench doctor --save`, or a part of one: {0}; save it again"
    )]
    Json(#[from] serde_json::Error),
    /// It is of another version.
    #[error(
        "the snapshot is of version {0}, and this program reads version {VERSION}: save it again with this program"
    )]
    Version(u32),
}

impl Snapshot {
    /// Reads what [`Snapshot::json`] wrote. What a snapshot lacks was not seen.
    ///
    /// # Errors
    ///
    /// A text that is none, or of another version.
    pub fn from_json(text: &str) -> Result<Self, SnapshotError> {
        #[derive(Deserialize)]
        struct OnlyVersion {
            version: u32,
        }
        let OnlyVersion { version } = serde_json::from_str(text)?;
        if version != VERSION {
            return Err(SnapshotError::Version(version));
        }
        Ok(serde_json::from_str(text)?)
    }

    /// Writes it, as a person may send it to others: addresses are hashed with a key that is thrown
    /// away, so that equal ones stay equal. Hardware addresses, serials and host names are not in
    /// it, nor ever were.
    ///
    /// # Errors
    ///
    /// Those of memory only.
    pub fn json(&self) -> Result<String, SnapshotError> {
        let key = RandomState::new();
        let mut shared = self.clone();
        for interface in &mut shared.interfaces {
            if let Seen::Value(addresses) = &mut interface.addresses {
                addresses.iter_mut().for_each(|it| it.address = hashed(&key, &it.address));
            }
        }
        if let Seen::Value(rules) = &mut shared.machine.firewall {
            for rule in rules {
                let words: Vec<String> =
                    rule.split_whitespace().map(|it| hidden(&key, it)).collect();
                *rule = words.join(" ");
            }
        }
        Ok(serde_json::to_string_pretty(&shared)? + "\n")
    }
}

/// A word of a rule: itself, unless there is an address in it.
fn hidden(key: &RandomState, word: &str) -> String {
    let is_part = |it: char| !(it.is_ascii_hexdigit() || it == '.' || it == ':');
    let has_address =
        word.split(is_part).any(|it| it.parse::<IpAddr>().is_ok() || it.matches(':').count() > 1);
    if has_address { hashed(key, word) } else { word.to_owned() }
}

fn hashed(key: &RandomState, text: &str) -> String {
    format!("hashed-{:016x}", key.hash_one(text))
}

/// All that is the machine's, or this process's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The kernel's release.
    pub kernel: Seen<String>,
    /// Whether the kernel has AF_XDP.
    pub af_xdp: Seen<bool>,
    /// The effective capabilities, as a mask.
    pub capabilities: Seen<u64>,
    /// Those that the program's file gives, as a mask; `None` if it gives none.
    pub file_capabilities: Seen<Option<u64>>,
    /// The limit of locked memory in bytes; `None` if there is none.
    pub memlock: Seen<Option<u64>>,
    /// The directory of the marks of counters.
    pub state_dir: Seen<StateDir>,
    /// Whether the wall clock is synchronised.
    pub clock_synchronised: Seen<bool>,
    /// The cores that this process may use.
    pub cores: Seen<Vec<usize>>,
    /// The provider that encrypts.
    pub aead: Seen<String>,
    /// The longest time in a spinning loop between two looks at the clock, in microseconds.
    pub gap_us: Seen<u64>,
    /// `/proc/stat` before and after that.
    pub stat: Seen<[String; 2]>,
    /// The sockets of the ports that hosts and key services want, in this network namespace.
    pub sockets: Seen<Vec<Socket>>,
    /// Rules of the firewall that name one of these ports, and chains of input that drop.
    pub firewall: Seen<Vec<String>>,
    /// Whether irqbalance runs.
    pub irqbalance: Seen<bool>,
    /// Files of `/proc` and `/sys`.
    pub files: Files,
}

/// The directory of the marks of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateDir {
    /// Whether it is there.
    pub exists: bool,
    /// Whether it is lost when the machine restarts.
    pub in_memory: bool,
    /// Whether this process may write there.
    pub writable: bool,
}

/// A socket that has a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// Whether it is one of TCP that listens; otherwise one of UDP.
    pub tcp: bool,
    /// Its number, in the byte order of this machine.
    pub port: u16,
}

/// An interface, and all that is seen of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// The name that the kernel has for it.
    pub name: String,
    /// The link, as rtnetlink tells of it.
    pub link: Seen<Link>,
    /// Addresses of IPv4 and IPv6 that it has.
    pub addresses: Seen<Vec<Address>>,
    /// The driver; `None` if there is no device behind the interface.
    pub driver: Seen<Option<String>>,
    /// The device's place on its bus, as `0000:81:00.0`.
    pub bus: Seen<Option<String>>,
    /// XDP, as the driver offers it.
    pub xdp: Seen<XdpOffer>,
    /// The offloads.
    pub features: Seen<Features>,
    /// The length of the rings; `None` here and below: the driver has nothing of that.
    pub rings: Seen<Option<Rings>>,
    /// The queues.
    pub channels: Seen<Option<Channels>>,
    /// The delay of interrupts.
    pub coalescing: Seen<Option<Coalescing>>,
    /// The queue of each value of the hash.
    pub rss_table: Seen<Option<Vec<u32>>>,
    /// The fields that make the hash of datagrams, as `ethtool -N` names them.
    pub rss_fields: Seen<Option<RssFields>>,
    /// Rules that steer packets to queues, a text each.
    pub ntuple: Seen<Option<Vec<String>>>,
    /// Flow control.
    pub pause: Seen<Option<Pause>>,
    /// Whether energy-efficient Ethernet is on.
    pub eee: Seen<Option<bool>>,
    /// Whether the link is half duplex; `None` if the driver does not tell.
    pub half_duplex: Seen<Option<bool>>,
    /// The speed in Mbit/s; `None` if the driver does not tell.
    pub speed: Seen<Option<u32>>,
    /// Counters of losses, a second apart.
    pub losses: Seen<[Losses; 2]>,
    /// Numbers of its interrupts.
    pub interrupts: Seen<Vec<u32>>,
    /// Files of `/proc` and `/sys`.
    pub files: Files,
}

/// An interface, as rtnetlink tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Link {
    /// The index, by which the kernel knows it when it is renamed.
    pub index: u32,
    /// Bytes of the longest packet.
    pub mtu: u32,
    /// Set up by its administrator.
    pub up: bool,
    /// Whether it has carrier.
    pub carrier: bool,
    /// Whether it is Ethernet.
    pub ethernet: bool,
    /// The kind of a virtual interface, as `vlan`.
    pub kind: Option<String>,
    /// The interface below, as of a VLAN; the peer of a veth is none.
    pub below: Option<String>,
    /// The interface above, which it is a part of.
    pub above: Option<String>,
    /// The kind of that.
    pub above_kind: Option<String>,
    /// Whether there are VLANs of it.
    pub has_vlans: bool,
    /// Receive queues.
    pub rx_queues: u32,
    /// Transmit queues.
    pub tx_queues: u32,
    /// The XDP program on it.
    pub program: Option<Program>,
}

/// An XDP program that is attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The id that the kernel gave it when it was loaded.
    pub id: u32,
    /// The name; empty if the kernel does not tell.
    pub name: String,
    /// The keyword of `ip link set` for its place.
    pub place: String,
}

/// An address of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address, or its hash.
    pub address: String,
    /// Whether it is not usable yet.
    pub tentative: bool,
    /// Whether another machine has it.
    pub duplicate: bool,
}

/// XDP, as a driver offers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpOffer {
    /// Programs in the driver.
    pub basic: bool,
    /// Redirection from there, as to a socket.
    pub redirect: bool,
    /// Sockets with zero-copy.
    pub zero_copy: bool,
    /// Packets in several buffers.
    pub multi_buffer: bool,
    /// How many buffers a packet has at most with zero-copy.
    pub zero_copy_segments: u32,
}

/// Offloads, by the kernel's names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// Those that are on.
    pub on: BTreeSet<String>,
    /// Those that a person may change.
    pub changeable: BTreeSet<String>,
}

/// Lengths of rings, in descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rings {
    /// The receive rings'.
    pub rx: u32,
    /// The longest that these can be.
    pub rx_max: u32,
}

/// Queues that a device has, by their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channels {
    /// Receive queues that have no transmit queue.
    pub rx: u32,
    /// Transmit queues that have no receive queue.
    pub tx: u32,
    /// Pairs of both.
    pub combined: u32,
    /// How many pairs there can be.
    pub combined_max: u32,
}

/// The delay of receive interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coalescing {
    /// In microseconds, if the driver tells.
    pub rx_usecs: Option<u32>,
    /// Whether the driver chooses it itself.
    pub adaptive: bool,
}

/// The fields that make the hash of datagrams, as `ethtool -N` names them: `sdfn`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RssFields {
    /// Over IPv4.
    pub udp4: String,
    /// Over IPv6.
    pub udp6: String,
}

/// Flow control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// The port stops when it is told to.
    pub rx: bool,
    /// The port tells others to stop.
    pub tx: bool,
}

/// Packets that an interface has lost, since it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Without a buffer for them: `rx_missed_errors`.
    pub missed: u64,
    /// In a queue of the device that overflowed: `rx_fifo_errors`.
    pub fifo: u64,
    /// Of a ring that overflowed: `rx_over_errors`.
    pub over: u64,
    /// Thrown away by the driver or the kernel: `rx_dropped`.
    pub dropped: u64,
}
