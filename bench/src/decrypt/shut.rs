//! The reasons why frames stay shut, and how many do.

use core::fmt;
use std::collections::BTreeMap;

use rma_core::addr::HostAddr;

use crate::line;

/// The reason why a frame stays shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shut {
    /// The key log has no key for it.
    NoKey,
    /// The frame that it answers is not in the capture before it.
    NoRequest,
    /// Its tag is wrong under all keys that it could have.
    WrongTag,
    /// The capture has only its beginning.
    Cut,
    /// It is of another version of the wire format.
    OtherVersion,
    /// It is no frame.
    NoFrame,
    /// Its block has no room for a comment.
    NoComment,
}

impl fmt::Display for Shut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoKey => "no key: the key log has none for its op or connection",
            Self::NoRequest => {
                "no request: what it answers, and its AAD names, was not seen before it"
            }
            Self::WrongTag => "wrong tag: under every key that the log has for it",
            Self::Cut => "cut: by the snap length of the capture",
            Self::OtherVersion => "other version: of the wire format",
            Self::NoFrame => "no frame: its type or length is none",
            Self::NoComment => {
                "no comment: a packet block of this kind cannot say that it is plain"
            }
        })
    }
}

/// A frame of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameSeen {
    pub(super) name: &'static str,
    pub(super) source: HostAddr,
    pub(super) destination: HostAddr,
    /// Octets of its payload.
    pub(super) payload: usize,
    /// `None`: it is in clear.
    pub(super) shut: Option<Shut>,
}

/// The comments of a packet: which of its payloads are in clear.
pub(super) fn comments(frames: &[FrameSeen]) -> Vec<String> {
    let plain = |it: &FrameSeen| it.payload > 0 && it.shut.is_none();
    if !frames.iter().any(plain) {
        return Vec::new();
    }
    if frames.iter().all(|it| it.payload == 0 && it.shut.is_none() || plain(it)) {
        return vec!["1rma plain".to_owned()];
    }
    let numbered = (1..).zip(frames).filter(|(_, frame)| plain(frame));
    numbered.map(|(number, _)| format!("1rma {number}/{} plain", frames.len())).collect()
}

/// How many frames were opened, and how many were not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) packets: u64,
    /// Packets whose link type is not known here.
    pub(super) unknown_links: u64,
    pub(super) opened: u64,
    /// Octets of the payloads of those.
    pub(super) octets: u64,
    pub(super) shut: BTreeMap<Shut, u64>,
}

impl Tally {
    pub(super) fn count(&mut self, frames: &[FrameSeen]) {
        for frame in frames {
            match frame.shut {
                None => {
                    self.opened += 1;
                    self.octets += frame.payload as u64;
                }
                Some(why) => *self.shut.entry(why).or_default() += 1,
            }
        }
    }

    /// Says of each frame of the packet that was counted last why it stays shut, if it does.
    pub(super) fn each(&self, frames: &[FrameSeen]) {
        for (number, frame) in (1..).zip(frames) {
            let FrameSeen { name, source, destination, shut: Some(why), .. } = frame else {
                continue;
            };
            let (packet, of) = (self.packets, frames.len());
            line!(
                "  packet {packet}, frame {number}/{of}: {name}, {source} to {destination}: {why}"
            );
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { packets, unknown_links, opened, octets, shut } = self;
        write!(f, "{packets} packets: {opened} frames opened, with {octets} octets of payload")?;
        for (why, count) in shut {
            write!(f, "\n  {count} shut: {why}")?;
        }
        if *unknown_links > 0 {
            let known = "known are Ethernet, raw IP and Linux cooked captures";
            write!(
                f,
                "\n  {unknown_links} packets of a link type that is not known here: {known}"
            )?;
        }
        Ok(())
    }
}
