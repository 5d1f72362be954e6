//! Sets connections up over a stream (§III-C1): the messages of two libraries, each with its length
//! before it.
//!
//! The stream must keep secrets and say who the peer is, as TLS with certificates of both does, or
//! a socket that stays within the machine: one of the messages has the connection's key, and who
//! gets that is the peer. Nothing here encrypts anything.

use std::io::{self, Read, Write};

use rma_star::library::{ConnectError, Qp, QpState};
use thiserror::Error;

use super::verbs::{StarVerbs, Turn};
use crate::error::WaitError;

/// The longest message of a set-up, in bytes: several times what there is.
const MESSAGE_LEN_MAX: usize = 1024;

/// Why a connection was not set up. Its queue pair is of no use any more, and is to be closed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SetUpError {
    /// The stream failed, or ended.
    #[error("the stream that the connection is set up over: {0}")]
    Stream(#[from] io::Error),
    /// The library refused to connect, or what the peer said.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The engine does nothing.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// An engine refused the connection, or the peer was not heard of in time.
    #[error(
        "the connection did not begin: a table is full, an address cannot be reached, or the peer is silent"
    )]
    Failed,
}

/// Who speaks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Connects,
    Accepts,
}

impl StarVerbs {
    /// Connects a queue pair with that of the peer, who calls [`StarVerbs::accept_over`] at the
    /// other end of `stream`: until it is [`QpState::Ready`]. The stream can be used for something
    /// else afterwards.
    ///
    /// Blocks: as long as reading from the stream does, which may have a timeout of its own, and
    /// for the library's `set_up_timeout` beyond that. Meanwhile nothing is done for other queue
    /// pairs.
    ///
    /// # Errors
    /// [`SetUpError`].
    pub fn connect_over(
        &mut self,
        qp: Qp,
        stream: &mut (impl Read + Write),
    ) -> Result<(), SetUpError> {
        self.set_up_with(qp, stream, Part::Connects, None)
    }

    /// Takes the connection that the peer makes with [`StarVerbs::connect_over`] at the other end
    /// of `stream`.
    ///
    /// # Errors
    /// As [`StarVerbs::connect_over`].
    pub fn accept_over(
        &mut self,
        qp: Qp,
        stream: &mut (impl Read + Write),
    ) -> Result<(), SetUpError> {
        self.set_up_with(qp, stream, Part::Accepts, None)
    }

    pub(crate) fn set_up_with(
        &mut self,
        qp: Qp,
        stream: &mut (impl Read + Write),
        part: Part,
        mut turn: Turn<'_>,
    ) -> Result<(), SetUpError> {
        if turn.is_none() {
            self.ended()?;
        }
        if part == Part::Connects {
            self.connect(qp)?;
            self.tell(qp, stream, again(&mut turn))?;
        }
        let message = receive(stream)?;
        self.handle_message(qp, &message)?;
        self.tell(qp, stream, again(&mut turn))?;
        if part == Part::Accepts {
            let message = receive(stream)?;
            self.handle_message(qp, &message)?;
        }
        self.set_up_until(turn, |state, _| (state == QpState::Ready).then_some(()), qp)
    }

    /// Sends the peer the next message, which may have to wait for the engine.
    fn tell(&mut self, qp: Qp, stream: &mut impl Write, turn: Turn<'_>) -> Result<(), SetUpError> {
        let message = self.set_up_until(turn, |_, message| message, qp)?;
        let len = u16::try_from(message.len()).map_err(io::Error::other)?;
        stream.write_all(&len.to_le_bytes())?;
        stream.write_all(&message)?;
        Ok(stream.flush()?)
    }

    /// Waits until `look` finds what it looks for in a queue pair's state and messages, or that has
    /// failed.
    fn set_up_until<T>(
        &mut self,
        turn: Turn<'_>,
        look: impl Fn(QpState, Option<Vec<u8>>) -> Option<T>,
        qp: Qp,
    ) -> Result<T, SetUpError> {
        let found = self.wait_until(None, turn, |verbs, now| {
            let message = verbs.poll_message(now, qp);
            match verbs.state(qp) {
                Some(state @ (QpState::Init | QpState::Ready)) => look(state, message).map(Ok),
                _ => Some(Err(SetUpError::Failed)),
            }
        })?;
        found.unwrap_or(Err(SetUpError::Failed))
    }
}

/// The same turn for another wait.
fn again<'a>(turn: &'a mut Turn<'_>) -> Turn<'a> {
    match turn {
        Some(turn) => Some(&mut **turn),
        None => None,
    }
}

/// The next message of the peer.
fn receive(stream: &mut impl Read) -> Result<Vec<u8>, SetUpError> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let len = usize::from(u16::from_le_bytes(len));
    if len > MESSAGE_LEN_MAX {
        let what = "a message that is longer than any of a set-up";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what).into());
    }
    let mut message = vec![0; len];
    stream.read_exact(&mut message)?;
    Ok(message)
}
