//! A port to compare with, beside the frames: what is asked for, and what is told of it.

use std::net::IpAddr;

use rma_xdp::keys::Peer;
use serde::{Deserialize, Serialize};

use crate::{
    compare::{
        fetch::Way,
        remote::{NotOpened, Opened, Ports},
    },
    session::message::Refusal,
};

/// The port that a client wants, in place of the one that it has.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct WantedPort {
    /// The way in which messages go; null if none is wanted any more.
    pub(super) way: Option<Way>,
    /// Bytes of each answer.
    pub(super) size: u64,
}

impl WantedPort {
    /// Opens it, or closes what there was.
    pub(super) fn open(
        self,
        ports: &mut Ports,
        connection: u64,
        peer: &Peer,
    ) -> Result<Option<Opened>, Refusal> {
        let Self { way, size } = self;
        let Some(way) = way else {
            ports.close(connection);
            return Ok(None);
        };
        let client: IpAddr = peer.address.ip();
        let opened = ports.open(connection, client, (way, size));
        opened.map(Some).map_err(|why| match why {
            NotOpened::Many(most) => Refusal::Ports { most },
            NotOpened::Why(why) => Refusal::NoPort { why },
        })
    }
}
