//! Messages that are none of the service's own, on its connections.
//!
//! A message of this crate is a CBOR map, and its first octet says so. One that begins otherwise is
//! offered to somebody else first, who is told which connection it came over and who is at the
//! other end of it. So a program needs one port for keys and for what it has to say besides.

use crate::{
    io::server::handler::Handler, limits::MESSAGE_LEN_MAX, peer::Peer, secret::Octets, time::Now,
};

/// The major type of a CBOR map (RFC 8949, section 3.1).
const MAP: u8 = 5;

/// Answers messages that begin as no key message does: of clients that have proved who they are.
pub trait Beside {
    /// Returns the reply to a message, of 1 to 16,384 octets as the message; `None`, or a reply of
    /// another length, and the service refuses the message. No two connections of a service have
    /// the same number.
    fn answer(&mut self, connection: u64, peer: &Peer, message: &[u8]) -> Option<Octets>;

    /// A connection has ended, whether or not anything was asked over it.
    fn ended(&mut self, connection: u64);
}

/// Nobody: the service refuses such messages.
impl Beside for () {
    fn answer(&mut self, _: u64, _: &Peer, _: &[u8]) -> Option<Octets> {
        None
    }

    fn ended(&mut self, _: u64) {}
}

/// A service's handler, and who is beside it, for one connection.
pub(super) struct With<'a, H> {
    pub(super) handler: &'a mut H,
    pub(super) beside: &'a mut dyn Beside,
    pub(super) connection: u64,
}

impl<H: Handler> Handler for With<'_, H> {
    fn handle(&mut self, now: Now, peer: &Peer, message: &[u8]) -> Octets {
        let Self { handler, beside, connection } = self;
        let is_beside = message.first().is_some_and(|octet| octet >> 5 != MAP);
        let reply = is_beside.then(|| beside.answer(*connection, peer, message)).flatten();
        let reply = reply.filter(|it| (1..=MESSAGE_LEN_MAX).contains(&it.len()));
        reply.unwrap_or_else(|| handler.handle(now, peer, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::WallTime;

    /// Repeats, with the number of the connection before it, what begins with `e`.
    struct Echo;

    impl Beside for Echo {
        fn answer(&mut self, connection: u64, _: &Peer, message: &[u8]) -> Option<Octets> {
            let reply = [&[connection as u8], message].concat();
            (message[0] == b'e').then(|| Octets::new(reply))
        }

        fn ended(&mut self, _: u64) {}
    }

    #[test]
    fn messages_that_begin_as_no_map_go_to_the_one_beside_and_all_others_to_the_service() {
        let peer = Peer {
            identity: "spiffe://example.org/a".parse().unwrap(),
            serial: "01".parse().unwrap(),
            not_after: WallTime::from_unix_millis(0),
            address: [192, 0, 2, 1].into(),
        };
        let now = Now { boot: rma_core::time::Instant::ZERO, wall: peer.not_after };
        let mut handler = |_: Now, _: &Peer, _: &[u8]| Octets::new(b"keys".to_vec());
        let mut ask = |beside: &mut dyn Beside, message: &[u8]| {
            With { handler: &mut handler, beside, connection: 7 }.handle(now, &peer, message)
        };
        assert_eq!(*ask(&mut Echo, b"echo"), *b"\x07echo");
        for message in [&b""[..], b"other", b"\xa1e", b"\xbfe", &[b'e'; MESSAGE_LEN_MAX]] {
            assert_eq!(*ask(&mut Echo, message), *b"keys", "{message:?}");
        }
        assert_eq!(*ask(&mut (), b"echo"), *b"keys");
    }
}
