//! The server's end: answers clients between turns of the engine.

use std::collections::BTreeSet;

use rma_xdp::keys::{Beside, Octets, Peer};

use crate::{
    compare::remote::Ports,
    session::{
        doctor::{Doctor, Examine, WantedFindings},
        lanes::Lanes,
        message::{Hello, Lane, Refusal, VERSION, Versions, WantedLane, kind, message},
        peer::WantedPort,
        usage::Usage,
    },
};

/// The sessions of all clients.
#[derive(Debug)]
pub(crate) struct Sessions {
    hello: Hello,
    lanes: Lanes,
    /// Ports to compare with.
    ports: Ports,
    /// The findings about this machine.
    doctor: Doctor,
    /// Connections that have asked what is served.
    open: BTreeSet<u64>,
    /// Messages that were none, or of another version.
    refused: u64,
}

impl Sessions {
    /// Of a server that says this of itself, but for its versions and lanes: of these it has as
    /// many as are said, in a region of that length.
    pub(crate) fn new(hello: Hello) -> Self {
        let lanes = Lanes::new(hello.region_len, hello.lanes);
        let ports = Ports::new(hello.region_len, hello.seed);
        let hello = Hello { versions: Versions::own(), writable: lanes.room(), ..hello };
        let (doctor, open) = (Doctor::default(), BTreeSet::new());
        Self { hello, lanes, ports, doctor, open, refused: 0 }
    }

    /// With these findings for clients that ask.
    #[must_use]
    pub(crate) fn with_doctor(mut self, examine: Examine) -> Self {
        self.doctor = Doctor::new(examine);
        self
    }

    /// How many clients there are.
    pub(crate) fn clients(&self) -> usize {
        self.open.len()
    }

    /// How many of them have a lane.
    pub(crate) fn writers(&self) -> usize {
        self.lanes.taken()
    }

    /// Whether a port to compare with is open, whose thread needs the engine's core.
    pub(crate) fn lends_core(&self) -> bool {
        self.ports.any()
    }

    /// How many messages were refused that were none, or of another version.
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }
}

/// Sessions, and what they need of the server.
pub(crate) struct Serving<'a> {
    /// Fills these bytes of the region with its pattern: an owner that was killed restores nothing.
    pub(crate) fill: &'a dyn Fn(Lane),
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) usage: &'a dyn Fn() -> Usage,
    /// Whether a peer may have keys to change the region with: nobody else is given a lane.
    pub(crate) may_write: &'a dyn Fn(&Peer) -> bool,
}

impl Serving<'_> {
    fn reply(&mut self, connection: u64, peer: &Peer, asked: &[u8]) -> Result<Vec<u8>, Refusal> {
        let malformed = Refusal::Malformed {};
        let (kind, body) = match asked {
            [VERSION, kind, body @ ..] => (*kind, body),
            _ => return Err(Refusal::Versions(Versions::own())),
        };
        let Sessions { hello, lanes, ports, doctor, open, .. } = self.sessions;
        match kind {
            kind::HELLO => {
                let theirs: Versions = serde_json::from_slice(body).ok().ok_or(malformed)?;
                if !theirs.goes_with(&hello.versions) {
                    return Err(Refusal::Versions(hello.versions.clone()));
                }
                open.insert(connection);
                Ok(message(kind, hello))
            }
            kind::LANE => {
                let WantedLane { len } = serde_json::from_slice(body).ok().ok_or(malformed)?;
                if !open.contains(&connection) || !(self.may_write)(peer) {
                    return Err(Refusal::NotAllowed {});
                }
                let lane: Lane = lanes.take(connection, len)?;
                (self.fill)(lanes.give(lane));
                Ok(message(kind, &lane))
            }
            kind::USAGE => Ok(message(kind, &(self.usage)())),
            kind::PEER => {
                let wanted: WantedPort = serde_json::from_slice(body).ok().ok_or(malformed)?;
                if !open.contains(&connection) || !(self.may_write)(peer) {
                    return Err(Refusal::NotAllowed {});
                }
                Ok(message(kind, &wanted.open(ports, connection, peer)?))
            }
            kind::DOCTOR => {
                let wanted: WantedFindings = serde_json::from_slice(body).ok().ok_or(malformed)?;
                if !open.contains(&connection) {
                    return Err(Refusal::NotAllowed {});
                }
                Ok(message(kind, &doctor.answer(connection, wanted)))
            }
            _ => Err(malformed),
        }
    }
}

impl Beside for Serving<'_> {
    fn answer(&mut self, connection: u64, peer: &Peer, asked: &[u8]) -> Option<Octets> {
        let reply = self.reply(connection, peer, asked).unwrap_or_else(|why| {
            let is_fault = matches!(why, Refusal::Versions(_) | Refusal::Malformed {});
            self.sessions.refused += u64::from(is_fault);
            message(kind::REFUSED, &why)
        });
        Some(Octets::new(reply))
    }

    fn ended(&mut self, connection: u64) {
        self.sessions.open.remove(&connection);
        self.sessions.lanes.give_back(connection);
        self.sessions.ports.close(connection);
        self.sessions.doctor.forget(connection);
    }
}
