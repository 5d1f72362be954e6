//! The session: all that a client and `rma-bench serve` tell each other beside the frames, over
//! TLS, at the port of the keys.
//!
//! Contract:
//! - Nothing goes over it while ops are measured: it is asked before and after.
//! - A message is of a peer that has proved who it is, and panics nowhere whatever it holds.
//!
//! Invariant: no two connections have lanes that overlap.

mod doctor;
mod lanes;
mod message;
mod peer;
mod serving;
#[cfg(test)]
mod tests;
mod usage;

use core::time::Duration;
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use rma_keys::{
    io::client::Hindrance,
    message::frame::{LENGTH_LEN, length, message_len},
    tls::refused::CertificateRefused,
};
use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};
use serde::de::DeserializeOwned;

pub(crate) use doctor::{examine, in_a_line};
pub(crate) use message::{Hello, Lane, Versions};
pub(crate) use serving::{Serving, Sessions};
pub(crate) use usage::{Meter, Usage};

use doctor::{Findings, WantedFindings};
use message::{Refusal, VERSION, WantedLane, kind, message, refusal};
use peer::WantedPort;
use rma_doctor::Finding;

use crate::compare::{fetch::Way, remote::Opened};

/// How long an answer may take. It comes between turns of an engine that may have others to serve.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most findings that are taken from a server.
const FINDINGS_MAX: usize = 4096;

/// An error of the session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The connection has ended, or nothing comes.
    #[error(
        "the session with {address} is lost: {why}; from here on nothing is told of the server, and whoever asks next may be \
         given the same bytes to write to"
    )]
    Lost {
        /// The server.
        address: SocketAddr,
        /// The reason.
        why: String,
    },
    /// The other side is of another version.
    #[error("here is {here}; at {address} is {there}: install the same rma-bench on both hosts")]
    Version {
        /// The server.
        address: SocketAddr,
        /// This side, in words.
        here: String,
        /// The other side, in words.
        there: String,
    },
    /// Something answers that is no session.
    #[error("what {address} answers is no {what}: install the same rma-bench on both hosts")]
    Answer {
        /// The server.
        address: SocketAddr,
        /// The thing that was asked for.
        what: &'static str,
    },
    /// A lane cannot be that long.
    #[error(
        "writes spread over {len} bytes, and `rma-bench serve` at {address} has {most} for writers: give less with --span or \
         --size, or start it with --region-len {} or more", len.max(&64).next_multiple_of(64).saturating_mul(2)
    )]
    LaneLen {
        /// The server.
        address: SocketAddr,
        /// The bytes that were asked for.
        len: u64,
        /// The most.
        most: u64,
    },
    /// There are too many writers.
    #[error(
        "all {lanes} lanes of `rma-bench serve` at {address} are taken: wait until a writer ends, or start it with more --lanes"
    )]
    Lanes {
        /// The server.
        address: SocketAddr,
        /// How many there are.
        lanes: u32,
    },
    /// The policy there allows this client nothing that changes the region.
    #[error(
        "the policy of `rma-bench serve` at {address} allows this client no op that changes the region: allow it WRITE there, \
         or read"
    )]
    NotAllowed {
        /// The server.
        address: SocketAddr,
    },
    /// Other writers take up the room.
    #[error(
        "writes spread over {len} bytes, and other writers leave {longest} in a row at {address}: give less with --span or \
         --size, wait until one ends, or start `rma-bench serve` with a larger --region-len"
    )]
    Stretch {
        /// The server.
        address: SocketAddr,
        /// The bytes that were asked for.
        len: u64,
        /// The most that is free in a row.
        longest: u64,
    },
}

impl SessionError {
    /// Of a hello that says what cannot be.
    pub(crate) const fn no_hello(address: SocketAddr) -> Self {
        Self::Answer { address, what: "hello of a session" }
    }
}

/// The reason why there is no session.
#[derive(Debug)]
pub(crate) enum NoSession {
    /// There is no connection, of which more may come with time.
    Hindered(Hindrance),
    /// The key service there knows none.
    Unknown,
    /// The two sides do not go together.
    Error(SessionError),
}

/// A client's end.
#[derive(Debug)]
pub(crate) struct Session {
    wire: Wire,
    hello: Hello,
}

/// A connection that messages go over.
#[derive(Debug)]
struct Wire {
    address: SocketAddr,
    stream: StreamOwned<ClientConnection, TcpStream>,
}

impl Session {
    /// Connects, and asks what is served.
    ///
    /// # Errors
    /// If there is no connection, or its other end is no `serve` of these versions.
    pub(crate) fn open(address: SocketAddr, config: Arc<ClientConfig>) -> Result<Self, NoSession> {
        let mut wire = Wire::open(address, config).map_err(NoSession::Hindered)?;
        let own = Versions::own();
        let reply = wire.exchange(&message(kind::HELLO, &own));
        let reply = reply.map_err(|why| NoSession::Hindered(hindrance(why)))?;
        // A map: the key service itself has refused it.
        if reply[0] >> 5 == 5 {
            return Err(NoSession::Unknown);
        }
        let hello: Hello = wire.understood(&reply, kind::HELLO).map_err(NoSession::Error)?;
        if !hello.versions.goes_with(&own) {
            return Err(NoSession::Error(wire.other_version(&hello.versions)));
        }
        let Hello { writable, region_len, .. } = hello;
        if writable.end().is_none_or(|end| end > region_len) {
            let what = "hello of a session";
            return Err(NoSession::Error(SessionError::Answer { address, what }));
        }
        Ok(Self { wire, hello })
    }

    /// The server's own words: what there is, and on which machine.
    pub(crate) const fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The server's address.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.wire.address
    }

    /// Takes `len` bytes that hold the region's pattern, and that nobody else writes to as long as
    /// the connection lasts. A lane that was taken before is given back.
    ///
    /// # Errors
    /// If there is no such lane, and which; if the session is lost.
    pub(crate) fn lane(&mut self, len: u64) -> Result<Lane, SessionError> {
        let reply = self.wire.ask(&message(kind::LANE, &WantedLane { len }))?;
        let address = self.wire.address;
        match refusal(&reply) {
            Some(Refusal::LaneLen { most }) => Err(SessionError::LaneLen { address, len, most }),
            Some(Refusal::Lanes { lanes }) => Err(SessionError::Lanes { address, lanes }),
            Some(Refusal::Stretch { longest }) => {
                Err(SessionError::Stretch { address, len, longest })
            }
            Some(Refusal::NotAllowed {}) => Err(SessionError::NotAllowed { address }),
            _ => {
                let lane: Lane = self.wire.understood(&reply, kind::LANE)?;
                let room = self.hello.writable;
                let inside = lane.offset >= room.offset
                    && lane.end().is_some_and(|end| room.end().is_some_and(|most| end <= most));
                let what = "lane of a session";
                let is_right = lane.len == len && inside;
                if is_right { Ok(lane) } else { Err(SessionError::Answer { address, what }) }
            }
        }
    }

    /// Has a port opened to compare with, for answers of `size` bytes, in place of the one that
    /// there was; without a way, that one is closed.
    ///
    /// # Errors
    /// The reason why there is none; if the session is lost.
    pub(crate) fn port(
        &mut self,
        way: Option<Way>,
        size: u64,
    ) -> Result<Result<Option<Opened>, String>, SessionError> {
        let reply = self.wire.ask(&message(kind::PEER, &WantedPort { way, size }))?;
        let why = match refusal(&reply) {
            Some(Refusal::Malformed {}) => {
                "`rma-bench serve` there is older and has none: install the same on both hosts"
                    .to_owned()
            }
            Some(Refusal::NotAllowed {}) => {
                "the policy there allows this client no op that changes the region: allow it WRITE"
                    .to_owned()
            }
            Some(Refusal::Ports { most }) => {
                format!("{most} such ports are open there: wait until another client ends")
            }
            // Somebody else's words: none of them moves a cursor.
            Some(Refusal::NoPort { why }) => {
                format!("there: {}", why.replace(char::is_control, ""))
            }
            _ => return Ok(Ok(self.wire.understood(&reply, kind::PEER)?)),
        };
        Ok(Err(why))
    }

    /// Asks what the server has used and seen since it began.
    ///
    /// # Errors
    /// If the session is lost.
    pub(crate) fn usage(&mut self) -> Result<Usage, SessionError> {
        let reply = self.wire.ask(&message(kind::USAGE, &()))?;
        self.wire.understood(&reply, kind::USAGE)
    }

    /// Asks what the server's own doctor finds: those of its findings that are there so far. They
    /// are all as soon as `Some` comes.
    ///
    /// # Errors
    /// If the server is older and has none, or the session is lost.
    pub(crate) fn findings(&mut self) -> Result<Option<Vec<Finding>>, SessionError> {
        let mut found = Vec::new();
        loop {
            let wanted = WantedFindings { from: found.len() };
            let reply = self.wire.ask(&message(kind::DOCTOR, &wanted))?;
            let Findings { all, part } = self.wire.understood(&reply, kind::DOCTOR)?;
            let Some(all) = all else { return Ok(None) };
            let is_end = part.is_empty();
            found.extend(part);
            if is_end || found.len() >= all.min(FINDINGS_MAX) {
                return Ok(Some(found));
            }
        }
    }
}

impl Wire {
    fn open(address: SocketAddr, config: Arc<ClientConfig>) -> Result<Self, Hindrance> {
        let connect = |why: io::Error| match why.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => Hindrance::Time("connecting"),
            _ => Hindrance::Connect(why.into()),
        };
        let mut socket = TcpStream::connect_timeout(&address, PATIENCE).map_err(connect)?;
        let is_set = socket.set_nodelay(true);
        let is_set = is_set.and_then(|()| socket.set_read_timeout(Some(PATIENCE)));
        is_set.and_then(|()| socket.set_write_timeout(Some(PATIENCE))).map_err(connect)?;
        let name = ServerName::IpAddress(address.ip().into());
        let mut tls = ClientConnection::new(config, name).map_err(of_tls)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket).map_err(hindrance)?;
        }
        Ok(Self { address, stream: StreamOwned::new(tls, socket) })
    }

    /// Sends a message, and waits for its reply, which is not empty.
    fn exchange(&mut self, message: &[u8]) -> io::Result<Vec<u8>> {
        let Self { stream, .. } = self;
        stream.write_all(&[&length(message.len())[..], message].concat())?;
        stream.flush()?;
        let mut len = [0; LENGTH_LEN];
        stream.read_exact(&mut len)?;
        let len = message_len(len).map_err(|why| io::Error::new(ErrorKind::InvalidData, why))?;
        let mut reply = vec![0; len];
        stream.read_exact(&mut reply)?;
        Ok(reply)
    }

    fn ask(&mut self, message: &[u8]) -> Result<Vec<u8>, SessionError> {
        let address = self.address;
        self.exchange(message).map_err(|why| {
            let why = match why.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    format!("no answer came within {} s", PATIENCE.as_secs())
                }
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                    "the server has closed it".to_owned()
                }
                _ => why.to_string(),
            };
            SessionError::Lost { address, why }
        })
    }

    /// Reads a reply of this kind.
    fn understood<T: DeserializeOwned>(&self, reply: &[u8], kind: u8) -> Result<T, SessionError> {
        if let Some(Refusal::Versions(theirs)) = refusal(reply) {
            return Err(self.other_version(&theirs));
        }
        let what = match kind {
            kind::HELLO => "hello of a session",
            kind::LANE => "lane of a session",
            kind::PEER => "port of a session",
            kind::DOCTOR => "findings of a session",
            _ => "usage of a session",
        };
        let body = reply.strip_prefix(&[VERSION, kind]);
        let body = body.and_then(|it| serde_json::from_slice(it).ok());
        body.ok_or(SessionError::Answer { address: self.address, what })
    }

    fn other_version(&self, theirs: &Versions) -> SessionError {
        let (here, there) = (Versions::own().to_string(), theirs.to_string());
        SessionError::Version { address: self.address, here, there }
    }
}

/// Tells what hindered a connection.
fn hindrance(why: io::Error) -> Hindrance {
    match why.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => return Hindrance::Time("an answer"),
        ErrorKind::UnexpectedEof => return Hindrance::Closed,
        _ => {}
    }
    let kind = why.kind();
    let tls = why.into_inner().and_then(|it| it.downcast::<rustls::Error>().ok());
    tls.map_or(Hindrance::Lost(kind), |why| of_tls(*why))
}

fn of_tls(why: rustls::Error) -> Hindrance {
    match CertificateRefused::cause(&why) {
        Some(why) => Hindrance::Certificate(Box::new(why.clone())),
        None => Hindrance::Tls(Box::new(why)),
    }
}
