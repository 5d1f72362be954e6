//! Messages of a session, octet by octet.
//!
//! A message has a version, a kind, and JSON. The version begins no CBOR map, so the key service
//! passes such messages on ([`Beside`](rma_xdp::keys::Beside)). Each is answered by one of its
//! kind, or by a refusal.
//!
//! | kind | asked with | answered with |
//! |---|---|---|
//! | hello | [`Versions`] | [`Hello`] |
//! | lane | [`WantedLane`] | [`Lane`] |
//! | usage | nothing | `Usage` |
//! | peer | `WantedPort` | `Opened`, or null |
//! | doctor | `WantedFindings` | `Findings`, without any until they are there |
//!
//! Of every version: the first octet is the version, the second the kind, a refusal is kind 0, and
//! one for the version has `versions`.

use core::fmt;

use rma_core::wire;
use serde::{Deserialize, Serialize};

use crate::conditions::Conditions;

/// The version of what is told. Another one is refused.
pub(super) const VERSION: u8 = 1;

/// The kinds of message.
pub(super) mod kind {
    pub(crate) const REFUSED: u8 = 0;
    pub(crate) const HELLO: u8 = 1;
    pub(crate) const LANE: u8 = 2;
    pub(crate) const USAGE: u8 = 3;
    pub(crate) const PEER: u8 = 4;
    pub(crate) const DOCTOR: u8 = 5;
}

/// The versions of one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Versions {
    /// Of the session.
    pub(crate) session: u8,
    /// Of the frames.
    pub(crate) wire: u8,
    /// Of the program.
    pub(crate) program: String,
}

impl Versions {
    /// Those of this program.
    pub(crate) fn own() -> Self {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        Self { session: VERSION, wire: wire::VERSION, program }
    }

    /// Whether the two sides understand each other.
    pub(super) const fn goes_with(&self, other: &Self) -> bool {
        self.session == other.session && self.wire == other.wire
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session, wire, program } = self;
        write!(f, "rma-bench {program}, with session {session} and frames {wire}")
    }
}

/// The words in which `serve` tells of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Its versions.
    pub(crate) versions: Versions,
    /// The UDP port of the frames.
    pub(crate) port: u16,
    /// The name of the region. The queue beside it is NAME/queue.
    pub(crate) region: String,
    /// The region's length in bytes. 0: there is a queue alone.
    pub(crate) region_len: u64,
    /// The seed of the pattern that fills it.
    pub(crate) seed: u64,
    /// The types of op that are served, SEND if there is a queue. An operator's policy may give a
    /// client fewer.
    pub(crate) ops: Vec<String>,
    /// The part of the region that lanes are in. Nobody writes to the bytes before.
    pub(crate) writable: Lane,
    /// How many lanes there can be at once.
    pub(crate) lanes: u32,
    /// The machine that it runs on, since that was started: equal to the client's own if both are
    /// on one.
    #[serde(default)]
    pub(crate) boot: String,
    /// The conditions of its numbers.
    pub(crate) conditions: Conditions,
}

/// A part of the region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lane {
    /// Its first byte.
    pub(crate) offset: u64,
    /// Its length in bytes.
    pub(crate) len: u64,
}

impl Lane {
    /// The byte after its last one, if there can be such a lane.
    pub(crate) const fn end(self) -> Option<u64> {
        self.offset.checked_add(self.len)
    }
}

/// The bytes that a writer wants.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct WantedLane {
    pub(super) len: u64,
}

/// The reason why something is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Refusal {
    /// It is of another version than this one's.
    Versions(Versions),
    /// It is no message.
    Malformed {},
    /// A lane cannot be that long.
    LaneLen { most: u64 },
    /// All lanes are taken.
    Lanes { lanes: u32 },
    /// The policy allows this client nothing that changes the region.
    NotAllowed {},
    /// No such stretch is free.
    Stretch { longest: u64 },
    /// So many ports to compare with are open already.
    Ports { most: usize },
    /// There is no such port to compare with.
    NoPort { why: String },
}

/// Makes a message.
pub(super) fn message(kind: u8, body: &impl Serialize) -> Vec<u8> {
    let mut message = vec![VERSION, kind];
    serde_json::to_writer(&mut message, body).expect("plain data, into memory");
    message
}

/// Returns the refusal that a reply is, of whichever version.
pub(super) fn refusal(reply: &[u8]) -> Option<Refusal> {
    match reply {
        [_, kind::REFUSED, body @ ..] => serde_json::from_slice(body).ok(),
        _ => None,
    }
}
