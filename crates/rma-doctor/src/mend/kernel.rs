//! The settings as they are in a kernel: this one's by netlink and files, or another in tests.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use rustix::{
    fd::OwnedFd,
    net::{
        self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
        sockopt::{Timeout, set_socket_timeout},
    },
};

use serde::{Deserialize, Serialize};

use crate::{
    genl::{Attribute, Attributes, Generic, Reply},
    setting::Setting,
};

/// Something that has settings.
pub trait Kernel {
    /// Reads what a setting is now; the value that comes with it is not looked at.
    ///
    /// # Errors
    /// If it cannot be seen, or there is none.
    fn read(&mut self, setting: &Setting) -> Result<Setting, KernelError>;

    /// Sets it. What the driver makes of it is seen by reading it back.
    ///
    /// # Errors
    /// If it was refused.
    fn set(&mut self, setting: &Setting) -> Result<(), KernelError>;
}

/// An error of a kernel that was asked for a setting, or to set it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The interface is not there, or not in this namespace.
    #[error("there is no interface {name} in this network namespace: see `ip link`")]
    NoInterface {
        /// The name.
        name: String,
    },
    /// The driver has no such setting.
    #[error("the driver has no such setting")]
    Without,
    /// There is no netlink for it.
    #[error("this program does not set it: type `{command}`")]
    ByHand {
        /// The command.
        command: String,
    },
    /// Another thing stands at its place.
    #[error(
        "{path} is not of this interface: /sys is of another namespace; run it in one shell with `ip netns exec`"
    )]
    OtherSys {
        /// The path.
        path: String,
    },
    /// The kernel says no.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// An interface, as it is known again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its index, which one that is made anew has not.
    pub index: u32,
    /// Its name.
    pub name: String,
}

/// The kernel that this runs on, in the namespace of the thread.
#[derive(Debug)]
pub struct Running {
    /// The directory that `/proc` and `/sys` are below.
    root: PathBuf,
    interface: Option<Interface>,
    generic: Option<Generic>,
}

const ETHTOOL: &str = "ethtool";

/// A setting as the family `ethtool` has it: numbers from
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/ethtool_netlink.h>. What sets
/// it is the command after.
struct Ethtool {
    get: u8,
}

const FEATURES: Ethtool = Ethtool { get: 11 };
const RINGS: Ethtool = Ethtool { get: 15 };
const CHANNELS: Ethtool = Ethtool { get: 17 };
const COALESCE: Ethtool = Ethtool { get: 19 };
const EEE: Ethtool = Ethtool { get: 23 };

const HEADER: u16 = 1;
const HEADER_DEV_INDEX: u16 = 1;
const FEATURES_HW: u16 = 2;
const FEATURES_WANTED: u16 = 3;
const FEATURES_ACTIVE: u16 = 4;
const BITSET_BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;
const RINGS_RX: u16 = 6;
const CHANNELS_RX: u16 = 6;
const CHANNELS_TX: u16 = 7;
const CHANNELS_COMBINED: u16 = 9;
const COALESCE_RX_USECS: u16 = 2;
const COALESCE_ADAPTIVE_RX: u16 = 11;
const EEE_ENABLED: u16 = 5;

impl Running {
    /// The settings of the machine, and of an interface of this name.
    ///
    /// # Errors
    /// If there is no such interface, or no netlink.
    pub fn new(interface: Option<&str>) -> Result<Self, KernelError> {
        let interface = interface.map(|it| Ok::<_, KernelError>(Link::named(it)?.interface));
        Ok(Self { root: "/".into(), interface: interface.transpose()?, generic: None })
    }

    /// The same, with other `/proc` and `/sys` below a directory.
    #[must_use]
    pub fn below(self, root: &Path) -> Self {
        Self { root: root.to_owned(), ..self }
    }

    /// The interface whose settings these are; none for the machine alone.
    #[must_use]
    pub fn interface(&self) -> Option<&Interface> {
        self.interface.as_ref()
    }

    /// The index of the interface that a setting is of.
    fn index(&self, setting: &Setting) -> Result<u32, KernelError> {
        let name = setting.interface().unwrap_or_default();
        let is_it = |it: &&Interface| it.name == name;
        let found = self.interface.as_ref().filter(is_it);
        found.map(|it| it.index).ok_or_else(|| KernelError::NoInterface { name: name.to_owned() })
    }

    fn generic(&mut self) -> io::Result<&mut Generic> {
        if self.generic.is_none() {
            self.generic = Some(Generic::open()?);
        }
        self.generic.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn ask(&mut self, of: &Setting, what: &Ethtool) -> Result<Reply, KernelError> {
        let header = self.header(of)?;
        let replies = self.generic()?.ask(ETHTOOL, what.get, &header).map_err(of_driver)?;
        replies.into_iter().next().ok_or(KernelError::Without)
    }

    fn tell(
        &mut self,
        of: &Setting,
        what: &Ethtool,
        with: impl FnOnce(Attributes) -> Attributes,
    ) -> Result<(), KernelError> {
        let all = with(self.header(of)?);
        self.generic()?.ask(ETHTOOL, what.get + 1, &all).map_err(of_driver)?;
        Ok(())
    }

    fn header(&self, of: &Setting) -> Result<Attributes, KernelError> {
        let device = Attributes::default().u32(HEADER_DEV_INDEX, self.index(of)?);
        Ok(Attributes::default().nested(HEADER, &device))
    }

    /// The path of a file, if it is one of settings.
    fn path(&self, path: &str) -> Result<PathBuf, KernelError> {
        let from_root = Path::new(path).strip_prefix("/").ok().ok_or(KernelError::Without)?;
        let is_plain = from_root.components().all(|it| matches!(it, Component::Normal(_)));
        if !is_plain || !(from_root.starts_with("proc") || from_root.starts_with("sys")) {
            return Err(KernelError::Without);
        }
        let of_interface = path.strip_prefix("/sys/class/net/").and_then(|it| it.split_once('/'));
        if let Some((name, _)) = of_interface {
            let index = self.root.join("sys/class/net").join(name).join("ifindex");
            let index = fs::read_to_string(index)?.trim().parse();
            let is = self.interface.as_ref().filter(|it| it.name == name);
            if is.is_none_or(|it| Ok(it.index) != index) {
                return Err(KernelError::OtherSys { path: path.to_owned() });
            }
        }
        Ok(self.root.join(from_root))
    }
}

impl Kernel for Running {
    fn read(&mut self, setting: &Setting) -> Result<Setting, KernelError> {
        let mut is = setting.clone();
        match &mut is {
            Setting::Feature { name, on, .. } => {
                let reply = self.ask(setting, &FEATURES)?;
                let has = |set: u16| reply.get(set).is_some_and(|it| has_bit(it, name));
                if !has(FEATURES_HW) {
                    return Err(KernelError::Without);
                }
                *on = has(FEATURES_ACTIVE);
            }
            Setting::RxRing { length, .. } => {
                *length = number(&self.ask(setting, &RINGS)?, RINGS_RX)?;
            }
            Setting::Channels { rx, tx, combined, .. } => {
                let reply = self.ask(setting, &CHANNELS)?;
                let all = [(rx, CHANNELS_RX), (tx, CHANNELS_TX), (combined, CHANNELS_COMBINED)];
                for (count, kind) in all {
                    if let Some(count) = count {
                        *count = number(&reply, kind)?;
                    }
                }
            }
            Setting::Coalescing { adaptive, rx_usecs, .. } => {
                let reply = self.ask(setting, &COALESCE)?;
                *rx_usecs = number(&reply, COALESCE_RX_USECS)?;
                // A driver that has no choice of its own says nothing.
                *adaptive = reply.get(COALESCE_ADAPTIVE_RX).and_then(Attribute::u8) == Some(1);
            }
            Setting::Eee { on, .. } => {
                let reply = self.ask(setting, &EEE)?;
                let enabled = reply.get(EEE_ENABLED).and_then(Attribute::u8);
                *on = enabled.ok_or(KernelError::Without)? != 0;
            }
            Setting::Mtu { mtu, .. } => *mtu = Link::of(self.index(setting)?, setting)?.mtu,
            Setting::Up { up, .. } => *up = Link::of(self.index(setting)?, setting)?.up,
            Setting::File { path, value } => {
                *value = fs::read_to_string(self.path(path)?)?.trim().to_owned();
            }
            Setting::RssEqual { .. } | Setting::RssFields { .. } => return Err(by_hand(setting)),
        }
        Ok(is)
    }

    fn set(&mut self, setting: &Setting) -> Result<(), KernelError> {
        match setting {
            Setting::Feature { name, on, .. } => {
                let bit = Attributes::default().text(BIT_NAME, name);
                let bit = if *on { bit.flag(BIT_VALUE) } else { bit };
                let bits = Attributes::default().nested(BIT, &bit);
                let bits = Attributes::default().nested(BITSET_BITS, &bits);
                self.tell(setting, &FEATURES, |it| it.nested(FEATURES_WANTED, &bits))
            }
            Setting::RxRing { length, .. } => {
                self.tell(setting, &RINGS, |it| it.u32(RINGS_RX, *length))
            }
            Setting::Channels { rx, tx, combined, .. } => {
                let all = [(CHANNELS_RX, rx), (CHANNELS_TX, tx), (CHANNELS_COMBINED, combined)];
                let given = all.into_iter().filter_map(|(kind, count)| Some((kind, (*count)?)));
                self.tell(setting, &CHANNELS, |it| {
                    given.fold(it, |it, (kind, count)| it.u32(kind, count))
                })
            }
            Setting::Coalescing { adaptive, rx_usecs, .. } => {
                // Who has no choice of its own refuses to be told so.
                let chooses = self.ask(setting, &COALESCE)?.get(COALESCE_ADAPTIVE_RX).is_some();
                self.tell(setting, &COALESCE, |it| {
                    let it = it.u32(COALESCE_RX_USECS, *rx_usecs);
                    if chooses { it.u8(COALESCE_ADAPTIVE_RX, (*adaptive).into()) } else { it }
                })
            }
            Setting::Eee { on, .. } => {
                self.tell(setting, &EEE, |it| it.u8(EEE_ENABLED, (*on).into()))
            }
            Setting::Mtu { mtu, .. } => {
                let attribute = attribute(IFLA_MTU, &mtu.to_ne_bytes());
                let head = LinkHead { index: self.index(setting)?, ..LinkHead::default() };
                Ok(exchange(RTM_SETLINK, head, &attribute).map(drop)?)
            }
            Setting::Up { up, .. } => {
                let (index, flags) = (self.index(setting)?, u32::from(*up));
                let head = LinkHead { index, flags, change: IFF_UP };
                Ok(exchange(RTM_SETLINK, head, &[]).map(drop)?)
            }
            Setting::File { path, value } => Ok(fs::write(self.path(path)?, value)?),
            Setting::RssEqual { .. } | Setting::RssFields { .. } => Err(by_hand(setting)),
        }
    }
}

fn by_hand(setting: &Setting) -> KernelError {
    KernelError::ByHand { command: setting.command() }
}

fn of_driver(why: io::Error) -> KernelError {
    let is_without = why.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error());
    if is_without { KernelError::Without } else { KernelError::Io(why) }
}

fn number(reply: &Reply, kind: u16) -> Result<u32, KernelError> {
    reply.get(kind).and_then(Attribute::u32).ok_or(KernelError::Without)
}

/// Whether a bit of this name is in a set.
fn has_bit(set: Attribute<'_>, name: &str) -> bool {
    let bits = within(set, BITSET_BITS).flat_map(|bits| within(bits, BIT));
    bits.flat_map(|bit| within(bit, BIT_NAME)).any(|it| it.text() == name)
}

fn within(it: Attribute<'_>, kind: u16) -> impl Iterator<Item = Attribute<'_>> {
    it.nested().map_while(Result::ok).filter(move |it| it.kind == kind)
}

const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_ALT_IFNAME: u16 = 53;
const IFF_UP: u32 = 1;
const NLM_F_REQUEST_ACK: u16 = 5;
const NLMSG_ERROR: u16 = 2;
const HEAD_LEN: usize = 16;
const LINK_HEAD_LEN: usize = 16;

/// An interface, as rtnetlink has it.
#[derive(Debug)]
struct Link {
    interface: Interface,
    mtu: u32,
    up: bool,
}

/// The part of `ifinfomsg` that is asked with.
#[derive(Clone, Copy, Debug, Default)]
struct LinkHead {
    index: u32,
    flags: u32,
    change: u32,
}

impl Link {
    fn named(name: &str) -> Result<Self, KernelError> {
        let kind = if name.len() > 15 { IFLA_ALT_IFNAME } else { IFLA_IFNAME };
        let asked = attribute(kind, &[name.as_bytes(), &[0]].concat());
        Self::ask(LinkHead::default(), &asked, name)
    }

    fn of(index: u32, setting: &Setting) -> Result<Self, KernelError> {
        let name = setting.interface().unwrap_or_default();
        Self::ask(LinkHead { index, ..LinkHead::default() }, &[], name)
    }

    fn ask(head: LinkHead, asked: &[u8], name: &str) -> Result<Self, KernelError> {
        let no_device = rustix::io::Errno::NODEV.raw_os_error();
        let reply = exchange(RTM_GETLINK, head, asked).map_err(|why| {
            if why.raw_os_error() == Some(no_device) {
                return KernelError::NoInterface { name: name.to_owned() };
            }
            KernelError::Io(why)
        })?;
        Self::parse(&reply).ok_or_else(|| malformed().into())
    }

    fn parse(reply: &[u8]) -> Option<Self> {
        let at = |at: usize| Some(u32::from_ne_bytes(*reply.get(at..)?.first_chunk()?));
        let (index, flags) = (at(4)?, at(8)?);
        let (mut name, mut mtu, mut rest) = (None, None, reply.get(LINK_HEAD_LEN..)?);
        while !rest.is_empty() {
            let len = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
            let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
            let value = rest.get(4..len)?;
            match kind {
                IFLA_IFNAME => name = String::from_utf8(value.split_last()?.1.to_vec()).ok(),
                IFLA_MTU => mtu = value.try_into().ok().map(u32::from_ne_bytes),
                _ => {}
            }
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        let interface = Interface { index, name: name? };
        Some(Self { interface, mtu: mtu?, up: flags & IFF_UP != 0 })
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = (4 + value.len()) as u16;
    let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Asks rtnetlink of one interface, or tells it something: the answer without its head, empty where
/// it is a mere yes.
fn exchange(kind: u16, head: LinkHead, attributes: &[u8]) -> io::Result<Vec<u8>> {
    let (family, raw) = (AddressFamily::NETLINK, SocketType::RAW);
    // No protocol: rtnetlink is the one with number 0.
    let socket: OwnedFd = net::socket_with(family, raw, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(core::time::Duration::from_secs(2)))?;
    let len = (HEAD_LEN + LINK_HEAD_LEN + attributes.len()) as u32;
    let LinkHead { index, flags, change } = head;
    let mut message = [&len.to_ne_bytes()[..], &kind.to_ne_bytes()].concat();
    message.extend(NLM_F_REQUEST_ACK.to_ne_bytes());
    // One question a socket: its number tells nothing.
    message.extend([0; 8]);
    message.extend([0; 4]);
    message.extend([index, flags, change].map(u32::to_ne_bytes).concat());
    message.extend(attributes);
    net::send(&socket, &message, SendFlags::empty())?;
    let mut buffer = vec![0; 64 * 1024];
    let received = || net::recv(&socket, &mut buffer[..], RecvFlags::empty());
    let (len, _) = rustix::io::retry_on_intr(received)?;
    let answer = buffer.get(..len).and_then(|it| {
        let len = u32::from_ne_bytes(*it.first_chunk()?) as usize;
        it.get(HEAD_LEN..len)
    });
    let answer = answer.ok_or_else(malformed)?;
    if buffer[4..6] != NLMSG_ERROR.to_ne_bytes() {
        return Ok(answer.to_vec());
    }
    match answer.first_chunk().map(|it| i32::from_ne_bytes(*it)) {
        Some(0) => Ok(Vec::new()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno.wrapping_neg())),
        None => Err(malformed()),
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an answer of the kernel is cut")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_read_for_real_and_an_interface_that_is_not_there_is_named() {
        let mut kernel = Running::new(Some("lo")).unwrap();
        let mtu = Setting::Mtu { interface: "lo".to_owned(), mtu: 0 };
        let Setting::Mtu { mtu, .. } = kernel.read(&mtu).unwrap() else { panic!("another") };
        assert!(mtu >= 1500, "{mtu}");
        let other = Setting::Mtu { interface: "nosuch0".to_owned(), mtu: 0 };
        for why in [kernel.read(&other).unwrap_err(), Running::new(Some("nosuch0")).unwrap_err()] {
            assert!(why.to_string().contains("no interface nosuch0"), "{why}");
        }
    }

    #[test]
    fn files_are_those_of_settings_and_of_this_interface() {
        let root = std::env::temp_dir().join(format!("rma-doctor-files-{}", std::process::id()));
        let of = |path: &str| Setting::File { path: path.to_owned(), value: "2".to_owned() };
        let at = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        at("sys/class/net/lo/napi_defer_hard_irqs", "0\n");
        at("sys/class/net/lo/ifindex", "1\n");
        at("sys/class/net/eth0/ifindex", "1\n");
        at("etc/passwd", "");
        let mut kernel = Running::new(Some("lo")).unwrap().below(&root);
        let setting = of("/sys/class/net/lo/napi_defer_hard_irqs");
        assert_eq!(kernel.read(&setting).unwrap().value(), "0");
        kernel.set(&setting).unwrap();
        assert_eq!(kernel.read(&setting).unwrap(), setting);
        for path in ["/etc/passwd", "/proc/../etc/passwd", "sys/x"] {
            assert!(matches!(kernel.set(&of(path)), Err(KernelError::Without)), "{path}");
        }
        at("sys/class/net/lo/ifindex", "7\n");
        for path in ["/sys/class/net/lo/napi_defer_hard_irqs", "/sys/class/net/eth0/x"] {
            assert!(matches!(kernel.read(&of(path)), Err(KernelError::OtherSys { .. })), "{path}");
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn an_answer_of_rtnetlink_that_is_cut_anywhere_is_none() {
        let asked = attribute(IFLA_IFNAME, b"lo\0");
        let whole = exchange(RTM_GETLINK, LinkHead::default(), &asked).unwrap();
        assert!(Link::parse(&whole).is_some());
        for len in 0..whole.len() {
            // At an attribute's end, what is there may be enough.
            _ = Link::parse(&whole[..len]);
        }
        assert!(Link::parse(&whole[..LINK_HEAD_LEN]).is_none());
        assert!(Link::parse(&[0xff; 64]).is_none());
    }
}
