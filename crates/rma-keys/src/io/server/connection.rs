//! One connection of a service: its handshake, then one message after the other.
//!
//! The next message is read when the reply to the last one is out, so a client that asks without
//! reading stops itself. It reads and writes its socket, and never waits: time is an argument.

use core::time::Duration;
use std::{
    io::{ErrorKind, Read, Write},
    sync::Arc,
};

use rma_core::{addr::HostAddr, time::Instant};
use rustls::{
    ServerConfig,
    server::{Acceptor, ServerConnection},
};

use crate::{
    io::{
        link::{Ended, Link},
        poller::Interest,
        server::{handler::Handler, reason::EndReason},
    },
    peer::Peer,
    time::Now,
    tls::{ALPN, certificate::Certificate, refused::CertificateRefused},
};

/// How many messages of one connection are answered before it is the turn of others.
const MESSAGES_MAX: usize = 4;

/// How long connections may take for what they do.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// A handshake, from the first octet of TCP on. Default: 2 s.
    pub handshake: Duration,
    /// From one message to the next. Default: 120 s.
    pub idle: Duration,
    /// A whole connection, so that roots that have changed are asked. Default: 1 h.
    pub age: Duration,
    /// The reading of a reply that the network does not take. Default: 10 s.
    pub unread: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { handshake: seconds(2), idle: seconds(120), age: seconds(3600), unread: seconds(10) }
    }
}

/// A connection that has been accepted.
pub(super) struct Connection<S> {
    pub(super) socket: S,
    pub(super) address: HostAddr,
    pub(super) since: Instant,
    stage: Stage,
    /// When the last message was answered.
    last: Instant,
    /// Since when a reply waits to be read.
    unread: Option<Instant>,
    pub(super) messages: u64,
    /// The reason why its client's certificate was not taken.
    pub(super) refused: Option<Box<CertificateRefused>>,
}

enum Stage {
    /// Its client has not said whom it would talk to.
    Silent(Box<Acceptor>),
    Handshake(Box<Link>),
    Open(Box<Link>, Peer),
}

/// The event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The next turn, which will come soon.
    Again,
    /// Its socket.
    Waits(Interest),
}

impl<S: Read + Write> Connection<S> {
    pub(super) fn new(now: Instant, socket: S, address: HostAddr) -> Self {
        let stage = Stage::Silent(Box::default());
        let (last, unread, messages, refused) = (now, None, 0, None);
        Self { socket, address, since: now, stage, last, unread, messages, refused }
    }

    /// Whether nothing has been said on it.
    pub(super) const fn is_silent(&self) -> bool {
        matches!(self.stage, Stage::Silent(_))
    }

    /// Returns the client's identity, once that is known.
    pub(super) const fn peer(&self) -> Option<&Peer> {
        match &self.stage {
            Stage::Open(_, peer) => Some(peer),
            _ => None,
        }
    }

    /// When it ends if nothing happens, and why.
    pub(super) fn deadline(&self, times: &Times) -> (Instant, EndReason) {
        let link = match &self.stage {
            Stage::Open(link, _) => link,
            _ => return (self.since + times.handshake, EndReason::HandshakeTime),
        };
        let idle = match self.unread {
            Some(since) => (since + times.unread, EndReason::Unread),
            None => (self.last + times.idle, EndReason::Idle),
        };
        let frame = link.deadline().filter(|_| self.unread.is_none());
        let frame = frame.map_or(idle, |it| (it, EndReason::FrameTime));
        idle.min(frame).min((self.since + times.age, EndReason::Age))
    }

    /// Goes on as far as the socket lets it.
    pub(super) fn turn(
        &mut self,
        now: Now,
        config: &Arc<ServerConfig>,
        handler: &mut impl Handler,
    ) -> Result<Turn, EndReason> {
        if let Stage::Silent(acceptor) = &mut self.stage {
            match listen(acceptor, &mut self.socket, config)? {
                Some(tls) => self.stage = Stage::Handshake(Box::new(Link::new(tls))),
                None => return Ok(Turn::Waits(Interest::Read)),
            }
        }
        if let Stage::Handshake(link) = &mut self.stage {
            let ended = |ended, link: &mut Link, socket: &mut S| {
                // So that the client is told by an alert.
                _ = link.flush(socket);
                EndReason::of_link(&ended, true)
            };
            let received = link.shake(now.boot, &mut self.socket);
            if let Err(why) = received {
                if let Ended::Tls(error) = &why {
                    self.refused = CertificateRefused::cause(error).cloned().map(Box::new);
                }
                return Err(ended(why, link, &mut self.socket));
            }
            let flushed = link.flush(&mut self.socket);
            let is_out = flushed.map_err(|why| EndReason::of_link(&why, true))?;
            if link.tls().is_handshaking() {
                let interest = if is_out { Interest::Read } else { Interest::Write };
                return Ok(Turn::Waits(interest));
            }
            let peer = peer(link, self.address)?;
            let Stage::Handshake(link) =
                core::mem::replace(&mut self.stage, Stage::Silent(Box::default()))
            else {
                unreachable!("it is in its handshake")
            };
            self.stage = Stage::Open(link, peer);
            self.last = now.boot;
        }
        let Stage::Open(link, peer) = &mut self.stage else { unreachable!("it is open by now") };
        let ended = |why| EndReason::of_link(&why, false);
        for _ in 0..MESSAGES_MAX {
            if !link.flush(&mut self.socket).map_err(ended)? {
                self.unread.get_or_insert(now.boot);
                return Ok(Turn::Waits(Interest::Write));
            }
            self.unread = None;
            match link.receive(now.boot, &mut self.socket) {
                Ok(Some(message)) => {
                    let reply = handler.handle(now, peer, &message);
                    link.send(&reply).map_err(ended)?;
                    self.messages += 1;
                    self.last = now.boot;
                }
                Ok(None) => return Ok(Turn::Waits(Interest::Read)),
                Err(why) => {
                    _ = link.flush(&mut self.socket);
                    return Err(ended(why));
                }
            }
        }
        Ok(Turn::Again)
    }

    /// Tells the client that it has ended, if it listens.
    pub(super) fn close(&mut self) {
        if let Stage::Open(link, _) = &mut self.stage {
            link.close(&mut self.socket);
        }
    }
}

/// Reads until the client has said whom it would talk to.
fn listen(
    acceptor: &mut Acceptor,
    socket: &mut (impl Read + Write),
    config: &Arc<ServerConfig>,
) -> Result<Option<ServerConnection>, EndReason> {
    loop {
        match acceptor.read_tls(socket) {
            Ok(0) => return Err(EndReason::Lost),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return Err(EndReason::Lost),
        }
        let accepted = match acceptor.accept() {
            Ok(None) => continue,
            Ok(Some(accepted)) => accepted.into_connection(Arc::clone(config)),
            Err(failed) => Err(failed),
        };
        return accepted.map(Some).map_err(|(error, mut alert)| {
            _ = alert.write_all(socket);
            match error {
                rustls::Error::NoApplicationProtocol => EndReason::Protocol,
                error => EndReason::of_handshake(&error),
            }
        });
    }
}

/// Returns the peer whose handshake has ended.
fn peer(link: &Link, address: HostAddr) -> Result<Peer, EndReason> {
    if link.tls().alpn_protocol() != Some(ALPN) {
        return Err(EndReason::Protocol);
    }
    let leaf = link.tls().peer_certificates().and_then(|chain| chain.first());
    let leaf = leaf.ok_or(EndReason::NoCertificate)?;
    let leaf = Certificate::read(leaf).or(Err(EndReason::CertificateUnreadable))?;
    let identity = leaf.identity().or(Err(EndReason::CertificateIdentity))?;
    let Certificate { serial, not_after, .. } = leaf;
    Ok(Peer { identity, serial, not_after, address })
}
