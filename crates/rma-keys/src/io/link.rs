//! Messages over one connection of TLS, whichever end of it this is.
//!
//! It holds one message at most in each direction: what comes after that stays in the socket. It
//! reads and writes what it is given, and never waits.

use core::{fmt, time::Duration};
use std::io::{self, ErrorKind, Read, Write};

use rma_core::time::Instant;
use rustls::Connection;
use zeroize::Zeroizing;

use crate::{
    limits::MESSAGE_LEN_MAX,
    message::{
        frame::{LENGTH_LEN, length, message_len},
        malformed::Malformed,
    },
    secret::Octets,
};

/// How long a message may take from its first octet to its last.
pub(super) const FRAME_TIME: Duration = Duration::from_secs(2);

/// How often a turn reads a socket before it is the turn of others.
const READS_MAX: usize = 16;

/// One connection of TLS, and the message that is coming in.
pub(super) struct Link {
    tls: Connection,
    frame: Zeroizing<Vec<u8>>,
    /// When the first octet of that message came.
    began: Option<Instant>,
}

/// Without what it says, which may be keys.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("began", &self.began).finish_non_exhaustive()
    }
}

/// The reason why a link has ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The other end has closed it.
    Closed,
    /// It broke.
    Lost(ErrorKind),
    /// The octets are not TLS, or not from the expected peer.
    Tls(rustls::Error),
    /// The octets are no message.
    Frame(Malformed),
}

impl Link {
    pub(super) fn new(tls: impl Into<Connection>) -> Self {
        let frame = Zeroizing::new(Vec::with_capacity(LENGTH_LEN));
        Self { tls: tls.into(), frame, began: None }
    }

    pub(super) const fn tls(&self) -> &Connection {
        &self.tls
    }

    /// When the message that is coming in has to be whole.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.began.map(|it| it + FRAME_TIME)
    }

    /// Sends a message, with its length. It goes out by [`Self::flush`].
    pub(super) fn send(&mut self, message: &[u8]) -> Result<(), Ended> {
        let mut writer = self.tls.writer();
        let sent =
            writer.write_all(&length(message.len())).and_then(|()| writer.write_all(message));
        sent.map_err(|error| Ended::Lost(error.kind()))
    }

    /// Tells the other end that this one sends no more.
    pub(super) fn close(&mut self, socket: &mut impl Write) {
        self.tls.send_close_notify();
        _ = self.flush(socket);
    }

    /// Writes the octets that have to go out. Returns whether all of it is out.
    pub(super) fn flush(&mut self, socket: &mut impl Write) -> Result<bool, Ended> {
        while self.tls.wants_write() {
            match self.tls.write_tls(socket) {
                Ok(0) => return Err(Ended::Lost(ErrorKind::WriteZero)),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Ended::Lost(error.kind())),
            }
        }
        Ok(true)
    }

    /// Reads what the handshake needs, and nothing that comes after it.
    pub(super) fn shake(&mut self, now: Instant, socket: &mut impl Read) -> Result<(), Ended> {
        for _ in 0..READS_MAX {
            if !self.tls.is_handshaking() || !self.read(now, socket)? {
                break;
            }
        }
        Ok(())
    }

    /// Reads the next message, as far as it has come.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        socket: &mut impl Read,
    ) -> Result<Option<Octets>, Ended> {
        for _ in 0..READS_MAX {
            if let Some(message) = self.take(now)? {
                return Ok(Some(message));
            }
            if !self.read(now, socket)? {
                break;
            }
        }
        Ok(None)
    }

    /// Reads once. Returns whether there may be more.
    fn read(&mut self, now: Instant, socket: &mut impl Read) -> Result<bool, Ended> {
        let was_handshaking = self.tls.is_handshaking();
        match self.tls.read_tls(socket) {
            Ok(0) if was_handshaking => return Err(Ended::Lost(ErrorKind::UnexpectedEof)),
            Ok(0) => {}
            Ok(_) if was_handshaking => {}
            Ok(_) => _ = self.began.get_or_insert(now),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(Ended::Lost(error.kind())),
        }
        self.tls.process_new_packets().map_err(Ended::Tls)?;
        Ok(true)
    }

    /// Takes what has been decrypted, up to the end of a message.
    fn take(&mut self, now: Instant) -> Result<Option<Octets>, Ended> {
        loop {
            let have = self.frame.len();
            let len = match self.frame.first_chunk::<LENGTH_LEN>() {
                None => LENGTH_LEN,
                Some(&length) => LENGTH_LEN + message_len(length).map_err(Ended::Frame)?,
            };
            if have == len && len > LENGTH_LEN {
                let message = Octets::new(self.frame[LENGTH_LEN..].to_vec());
                self.frame = Zeroizing::new(Vec::with_capacity(LENGTH_LEN));
                self.began = None;
                return Ok(Some(message));
            }
            if len > self.frame.capacity() {
                // At its full length at once, so that no copy is left behind.
                let mut grown = Zeroizing::new(Vec::with_capacity(len));
                grown.extend_from_slice(&self.frame);
                self.frame = grown;
            }
            debug_assert!(len <= LENGTH_LEN + MESSAGE_LEN_MAX);
            self.frame.resize(len, 0);
            let read = self.tls.reader().read(&mut self.frame[have..]);
            self.frame.truncate(have + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(Ended::Closed),
                Ok(_) => _ = self.began.get_or_insert(now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(Ended::Lost(error.kind())),
            }
        }
    }
}

/// Whether a socket could not be had as the system has none left.
pub(super) fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}
