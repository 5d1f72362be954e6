//! Sets connections up over a stream (§III-C1): the messages of two libraries, each with its length
//! before it.
//!
//! The stream must keep secrets and say who the peer is, as TLS with certificates of both does, or
//! a socket that stays within the machine: one of the messages has the connection's key, and
//! whoever gets that is the peer. Nothing here encrypts anything.
//!
//! Here a thread blocks that has the library; [futures](super::futures) have it for a step at a
//! time. Both take the same steps, and no longer than the library's `set_up_timeout` for all of
//! them.

use core::time::Duration;
use std::io::{self, ErrorKind, Read, Write};

use rma_core::time::Instant;
use rma_star::library::{ConnectError, Qp, QpState};
use thiserror::Error;

use super::verbs::{StarVerbs, Turn};
use crate::{
    error::WaitError,
    idle::{Idle, IdleTracker},
};

/// The longest message of a set-up, in bytes: several times what there is.
const MESSAGE_LEN_MAX: usize = 1024;

/// How often a stream that would block is looked at by a thread that sleeps. Longer: set-ups take
/// longer. Shorter: more of the core.
const LOOK: Duration = Duration::from_millis(1);

/// The reason why a connection was not set up. Close its queue pair; it is of no further use.
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
        "the connection did not begin: a table is full, an address cannot be reached, or the \
         peer is silent; close the queue pair and connect anew"
    )]
    Failed,
    /// Not all of it was done in time.
    #[error(
        "the connection was not set up within {after:?} (`VerbsConfig::set_up_timeout`): the peer is silent or slow; close the queue pair and connect anew"
    )]
    TimedOut {
        /// How long it may take.
        after: Duration,
    },
}

/// A stream that a connection is set up over, of whichever async runtime. It must keep secrets and
/// say who the peer is, as TLS with certificates of both does.
///
/// Over what tokio can read and write, both methods are one line:
///
/// ```text
/// impl SetUpStream for Tls {
///     async fn read_exact(&mut self, octets: &mut [u8]) -> io::Result<()> {
///         AsyncReadExt::read_exact(&mut self.0, octets).await.map(drop)
///     }
///     async fn write_all(&mut self, octets: &[u8]) -> io::Result<()> {
///         AsyncWriteExt::write_all(&mut self.0, octets).await
///     }
/// }
/// ```
pub trait SetUpStream: Send {
    /// Reads as many octets as there is room for.
    fn read_exact(&mut self, octets: &mut [u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Writes all octets, and flushes them.
    fn write_all(&mut self, octets: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
}

/// The side that speaks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Connects,
    Accepts,
}

/// A step of a set-up.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// The next message is told to the peer.
    Tell,
    /// The peer's next message is taken.
    Hear,
    /// Work may be posted.
    BeReady,
}

impl Part {
    /// Returns its steps, in order.
    pub(super) const fn steps(self) -> [Step; 4] {
        match self {
            Self::Connects => [Step::Tell, Step::Hear, Step::Tell, Step::BeReady],
            Self::Accepts => [Step::Hear, Step::Tell, Step::Hear, Step::BeReady],
        }
    }
}

/// How long the message is that comes next, by the octets before it.
pub(super) fn message_len(octets: [u8; LEN_LEN]) -> io::Result<usize> {
    let len = usize::from(u16::from_le_bytes(octets));
    if len > MESSAGE_LEN_MAX {
        let what = "a message that is longer than any of a set-up";
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    Ok(len)
}

/// The octets before a message that say how long it is.
pub(super) const LEN_LEN: usize = 2;

/// A message with its length before it, so that a stream gets both at once. In two writes the
/// second would wait for the peer to acknowledge the first, which takes TCP 40 ms.
pub(super) fn framed(message: &[u8]) -> io::Result<Vec<u8>> {
    let len = u16::try_from(message.len()).map_err(io::Error::other)?;
    Ok([&len.to_le_bytes(), message].concat())
}

impl StarVerbs {
    /// Connects a queue pair with that of the peer, who calls [`StarVerbs::accept_over`] at the
    /// other end of `stream`: until it is [`QpState::Ready`]. The stream can be used for something
    /// else afterwards.
    ///
    /// Blocks for the library's `set_up_timeout` at most, by a clock, if no read or write of the
    /// stream blocks for longer: give it a timeout (`TcpStream::set_read_timeout`; a stream that
    /// would block or whose time is over is tried again), or make it nonblocking. Between reads the
    /// other queue pairs are tended. Whoever serves others meanwhile connects by futures
    /// ([`AsyncVerbs::connect`](super::AsyncVerbs::connect)).
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
        turn: Turn<'_>,
    ) -> Result<(), SetUpError> {
        if turn.is_none() {
            self.ended()?;
        }
        let after = self.set_up_timeout();
        let until = self.now() + after;
        let idle = IdleTracker::new(self.idle());
        let mut set_up = SetUp { verbs: self, qp, turn, idle, after, until };
        if part == Part::Connects {
            set_up.verbs.connect(qp)?;
        }
        for step in part.steps() {
            match step {
                Step::Tell => {
                    let message = set_up.found(|_, message| message)?;
                    set_up.write(stream, &framed(&message)?)?;
                }
                Step::Hear => {
                    let mut len = [0; LEN_LEN];
                    set_up.read(stream, &mut len)?;
                    let mut message = vec![0; message_len(len)?];
                    set_up.read(stream, &mut message)?;
                    set_up.verbs.handle_message(qp, &message)?;
                }
                Step::BeReady => {
                    set_up.found(|state, _| (state == QpState::Ready).then_some(()))?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the state of a queue pair in a set-up: an error once that has failed.
pub(super) fn alive(state: Option<QpState>) -> Result<QpState, SetUpError> {
    match state {
        Some(state @ (QpState::Init | QpState::Ready)) => Ok(state),
        _ => Err(SetUpError::Failed),
    }
}

/// A set-up for which a thread blocks.
struct SetUp<'a, 't> {
    verbs: &'a mut StarVerbs,
    qp: Qp,
    turn: Turn<'t>,
    idle: IdleTracker,
    after: Duration,
    until: Instant,
}

impl SetUp<'_, '_> {
    fn left(&self) -> Result<Duration, SetUpError> {
        match self.until.since(self.verbs.now()) {
            Duration::ZERO => Err(SetUpError::TimedOut { after: self.after }),
            left => Ok(left),
        }
    }

    /// Waits until `look` finds what it looks for in the queue pair's state and messages, or that
    /// has failed.
    fn found<T>(
        &mut self,
        look: impl Fn(QpState, Option<Vec<u8>>) -> Option<T>,
    ) -> Result<T, SetUpError> {
        let (left, qp) = (self.left()?, self.qp);
        let turn = self.turn.as_mut().map(|turn| &mut **turn as _);
        let found = self.verbs.wait_until(Some(left), turn, |verbs, now| {
            let message = verbs.poll_message(now, qp);
            match alive(verbs.state(qp)) {
                Ok(state) => look(state, message).map(Ok),
                Err(error) => Some(Err(error)),
            }
        })?;
        found.unwrap_or(Err(SetUpError::TimedOut { after: self.after }))
    }

    fn read(&mut self, stream: &mut impl Read, octets: &mut [u8]) -> Result<(), SetUpError> {
        self.pass(octets.len(), ErrorKind::UnexpectedEof, |at| stream.read(&mut octets[at..]))
    }

    fn write(&mut self, stream: &mut impl Write, octets: &[u8]) -> Result<(), SetUpError> {
        self.pass(octets.len(), ErrorKind::WriteZero, |at| stream.write(&octets[at..]))?;
        self.pass(1, ErrorKind::WriteZero, |_| stream.flush().map(|()| 1))
    }

    /// Passes `len` octets through the stream, by as many calls of `pass` as it takes, and tends
    /// all queue pairs in between. `ended`: what it comes to if none pass.
    fn pass(
        &mut self,
        len: usize,
        ended: ErrorKind,
        mut pass: impl FnMut(usize) -> io::Result<usize>,
    ) -> Result<(), SetUpError> {
        let mut passed = 0;
        while passed < len {
            self.left()?;
            self.tend();
            match pass(passed) {
                Ok(0) => return Err(io::Error::from(ended).into()),
                Ok(count) => {
                    passed += count;
                    self.idle.busy();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_not_yet(&error) => self.rest()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn tend(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn();
        }
        self.verbs.poll();
    }

    /// The stream would block.
    fn rest(&mut self) -> Result<(), SetUpError> {
        let left = self.left()?;
        if self.turn.is_none() {
            self.verbs.ended()?;
            match self.idle.idle(self.verbs.now()) {
                Idle::Spin => core::hint::spin_loop(),
                Idle::Yield => std::thread::yield_now(),
                Idle::Sleep => self.verbs.sleep_for(Some(left.min(LOOK))),
            }
        }
        Ok(())
    }
}

/// Whether a stream says that it would block, or that the time is over which it may block for.
pub(super) fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
