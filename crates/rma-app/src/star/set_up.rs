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

use core::{mem, time::Duration};
use std::io::{self, ErrorKind, Read, Write};

use rma_core::time::Instant;
use rma_star::library::{ConnectError, Qp, QpState};
use thiserror::Error;

use super::verbs::StarVerbs;
use crate::{
    error::WaitError,
    wait::{At, Awaited, Look, Place as _, wait},
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
        self.set_up(SetUp::new(self, qp, stream, Part::Connects))
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
        self.set_up(SetUp::new(self, qp, stream, Part::Accepts))
    }

    fn set_up<S: Read + Write>(&mut self, mut set_up: SetUp<'_, S>) -> Result<(), SetUpError> {
        // Before the library has begun what nobody would end.
        self.ended()?;
        wait(self, None, |verbs| set_up.look(verbs)).map(drop)
    }

    /// Returns the end of [`StarVerbs::connect_over`], to be waited for by whoever turns an inline
    /// engine (`InlineHost::wait` of the crate `rma-xdp`). The engine stands still while the stream
    /// is read.
    pub fn connecting_over(
        &mut self,
        qp: Qp,
        stream: &mut (impl Read + Write),
    ) -> impl Awaited<Found = (), Error = SetUpError> {
        let mut set_up = SetUp::new(self, qp, stream, Part::Connects);
        At { place: self, look: move |verbs: &mut Self| set_up.look(verbs) }
    }

    /// Returns the end of [`StarVerbs::accept_over`], as [`StarVerbs::connecting_over`].
    pub fn accepting_over(
        &mut self,
        qp: Qp,
        stream: &mut (impl Read + Write),
    ) -> impl Awaited<Found = (), Error = SetUpError> {
        let mut set_up = SetUp::new(self, qp, stream, Part::Accepts);
        At { place: self, look: move |verbs: &mut Self| set_up.look(verbs) }
    }
}

/// Returns the state of a queue pair in a set-up: an error once that has failed.
pub(super) fn alive(state: Option<QpState>) -> Result<QpState, SetUpError> {
    match state {
        Some(state @ (QpState::Init | QpState::Ready)) => Ok(state),
        _ => Err(SetUpError::Failed),
    }
}

/// A set-up for which a thread waits.
struct SetUp<'s, S> {
    qp: Qp,
    stream: &'s mut S,
    /// Whether the library has yet to be told that this host connects.
    begins: bool,
    steps: core::array::IntoIter<Step, 4>,
    step: Step,
    /// The message of the step with its length before it, and how much of that has passed the
    /// stream. Empty: the library has yet to give it.
    octets: Vec<u8>,
    passed: usize,
    after: Duration,
    until: Instant,
}

impl<'s, S: Read + Write> SetUp<'s, S> {
    fn new(verbs: &StarVerbs, qp: Qp, stream: &'s mut S, part: Part) -> Self {
        let after = verbs.set_up_timeout();
        let (begins, mut steps) = (part == Part::Connects, part.steps().into_iter());
        let step = steps.next().expect("there are four");
        let (octets, until) = (Vec::new(), verbs.now() + after);
        Self { qp, stream, begins, steps, step, octets, passed: 0, after, until }
    }

    /// Takes the step that is next, as far as that goes now, and tends all queue pairs.
    fn look(&mut self, verbs: &mut StarVerbs) -> Result<Look<()>, SetUpError> {
        let work = verbs.poll();
        let now = verbs.looked_at();
        if now >= self.until {
            return Err(SetUpError::TimedOut { after: self.after });
        }
        if mem::take(&mut self.begins) {
            verbs.connect(self.qp)?;
        }
        let nothing = |until| if work > 0 { Look::Busy } else { Look::Idle(Some(until)) };
        match self.step {
            Step::BeReady if alive(verbs.state(self.qp))? == QpState::Ready => {
                return Ok(Look::Found(()));
            }
            Step::Tell if self.octets.is_empty() => {
                alive(verbs.state(self.qp))?;
                match verbs.poll_message(self.qp) {
                    Some(message) => self.octets = framed(&message)?,
                    None => return Ok(nothing(self.until)),
                }
            }
            Step::Hear if self.octets.is_empty() => self.octets.resize(LEN_LEN, 0),
            Step::BeReady => return Ok(nothing(self.until)),
            Step::Tell | Step::Hear => {}
        }
        match self.pass() {
            Ok(true) => self.passed_all(verbs)?,
            Ok(false) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if is_not_yet(&error) => return Ok(nothing(self.until.min(now + LOOK))),
            Err(error) => return Err(error.into()),
        }
        Ok(Look::Busy)
    }

    /// Passes some octets through the stream. Returns whether all have passed.
    fn pass(&mut self) -> io::Result<bool> {
        let left = &mut self.octets[self.passed..];
        let tells = matches!(self.step, Step::Tell);
        let (count, ended) = match (tells, left.is_empty()) {
            (true, true) => return self.stream.flush().map(|()| true),
            (true, false) => (self.stream.write(left)?, ErrorKind::WriteZero),
            (false, _) => (self.stream.read(left)?, ErrorKind::UnexpectedEof),
        };
        if count == 0 {
            return Err(ended.into());
        }
        self.passed += count;
        Ok(!tells && self.passed == self.octets.len())
    }

    /// All octets so far have passed: there are more of the message, or the step is taken.
    fn passed_all(&mut self, verbs: &mut StarVerbs) -> Result<(), SetUpError> {
        if let (Step::Hear, &[low, high]) = (self.step, &*self.octets) {
            let len = message_len([low, high])?;
            if len > 0 {
                self.octets.resize(LEN_LEN + len, 0);
                return Ok(());
            }
        }
        if let Step::Hear = self.step {
            verbs.handle_message(self.qp, &self.octets[LEN_LEN..])?;
        }
        self.step = self.steps.next().expect("the last one passes nothing");
        self.passed = 0;
        self.octets.clear();
        Ok(())
    }
}

/// Whether a stream says that it would block, or that the time is over which it may block for.
pub(super) fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
