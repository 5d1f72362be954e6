//! Set-ups as futures: they have the library for a step at a time, and not while they wait for the
//! peer, so all other futures go on.

use core::{future::poll_fn, pin::pin, task::Poll};
use std::io::{self, ErrorKind, Read, Write};

use rma_star::library::{Qp, QpState};

use super::{AsyncVerbs, Watch};
use crate::{
    error::WaitError,
    star::set_up::{
        LEN_LEN, Part, SetUpError, SetUpStream, Step, alive, framed, is_not_yet, message_len,
    },
};

/// A stream that blocks the thread that polls, for as long as its timeout.
struct Blocking<'s, T>(&'s mut T);

impl<T: Read + Write + Send> SetUpStream for Blocking<'_, T> {
    async fn read_exact(&mut self, octets: &mut [u8]) -> io::Result<()> {
        pass(octets.len(), ErrorKind::UnexpectedEof, |at| self.0.read(&mut octets[at..])).await
    }

    async fn write_all(&mut self, octets: &[u8]) -> io::Result<()> {
        pass(octets.len(), ErrorKind::WriteZero, |at| self.0.write(&octets[at..])).await?;
        pass(1, ErrorKind::WriteZero, |_| self.0.flush().map(|()| 1)).await
    }
}

/// Passes `len` octets through a stream that blocks. Whoever polls this looks at the time after
/// each call of `pass`.
async fn pass(
    len: usize,
    ended: ErrorKind,
    mut pass: impl FnMut(usize) -> io::Result<usize>,
) -> io::Result<()> {
    let mut passed = 0;
    poll_fn(|context| {
        if passed == len {
            return Poll::Ready(Ok(()));
        }
        match pass(passed) {
            Ok(0) => return Poll::Ready(Err(ended.into())),
            Ok(count) => passed += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // One that does not block at all leaves the core to others.
            Err(error) if is_not_yet(&error) => std::thread::yield_now(),
            Err(error) => return Poll::Ready(Err(error)),
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

impl AsyncVerbs {
    /// Connects a queue pair with that of the peer, who accepts at the other end of `stream`, by
    /// whichever method: until it is [`QpState::Ready`]. The stream can be used for something else
    /// afterwards.
    ///
    /// Other futures go on meanwhile. Within the library's `set_up_timeout` it is over, whatever
    /// the peer and the stream do, if somebody polls ([`AsyncVerbs::start`]).
    ///
    /// # Errors
    /// [`SetUpError`]. The queue pair must be closed then, also if the future was dropped.
    pub async fn connect(&self, qp: Qp, stream: &mut impl SetUpStream) -> Result<(), SetUpError> {
        self.set_up(qp, stream, Part::Connects).await
    }

    /// Takes the connection that the peer makes at the other end of `stream`. See
    /// [`AsyncVerbs::connect`].
    ///
    /// # Errors
    /// As [`AsyncVerbs::connect`].
    pub async fn accept(&self, qp: Qp, stream: &mut impl SetUpStream) -> Result<(), SetUpError> {
        self.set_up(qp, stream, Part::Accepts).await
    }

    /// [`AsyncVerbs::connect`] over a stream that blocks, as this thread does, which polls for
    /// other futures in between if no other thread does. Give the stream a timeout
    /// (`TcpStream::set_read_timeout`): what is over by that is tried again, until the time of the
    /// set-up is over.
    ///
    /// # Errors
    /// [`SetUpError`]. The queue pair must be closed then.
    pub fn connect_over(
        &self,
        qp: Qp,
        stream: &mut (impl Read + Write + Send),
    ) -> Result<(), SetUpError> {
        self.block_on(self.connect(qp, &mut Blocking(stream)))?
    }

    /// [`AsyncVerbs::accept`] over a stream that blocks: see [`AsyncVerbs::connect_over`].
    ///
    /// # Errors
    /// As [`AsyncVerbs::connect_over`].
    pub fn accept_over(
        &self,
        qp: Qp,
        stream: &mut (impl Read + Write + Send),
    ) -> Result<(), SetUpError> {
        self.block_on(self.accept(qp, &mut Blocking(stream)))?
    }

    async fn set_up(
        &self,
        qp: Qp,
        stream: &mut impl SetUpStream,
        part: Part,
    ) -> Result<(), SetUpError> {
        let (until, after) = self.with(|verbs| {
            verbs.ended()?;
            if part == Part::Connects {
                verbs.connect(qp)?;
            }
            let after = verbs.set_up_timeout();
            Ok::<_, SetUpError>((verbs.now() + after, after))
        })??;
        let watch = Watch::new(&self.handle, qp, Some(until)).map_err(WaitError::from)?;
        let mut steps = pin!(async {
            for step in part.steps() {
                match step {
                    Step::Tell => {
                        let message = self.found(qp, |_, message| message).await?;
                        stream.write_all(&framed(&message)?).await?;
                    }
                    Step::Hear => {
                        let mut len = [0; LEN_LEN];
                        stream.read_exact(&mut len).await?;
                        let mut message = vec![0; message_len(len)?];
                        stream.read_exact(&mut message).await?;
                        self.with(|verbs| verbs.handle_message(qp, &message))??;
                    }
                    Step::BeReady => {
                        self.found(qp, |state, _| (state == QpState::Ready).then_some(())).await?;
                    }
                }
            }
            Ok(())
        });
        poll_fn(|context| {
            // Before the steps look, so that no news falls between.
            let in_time = watch.renew(context).map_err(WaitError::from)?;
            match steps.as_mut().poll(context) {
                Poll::Pending if !in_time => Poll::Ready(Err(SetUpError::TimedOut { after })),
                polled => polled,
            }
        })
        .await
    }

    /// Waits until `look` finds something in a queue pair's state and messages. The set-up's watch
    /// wakes it.
    async fn found<T>(
        &self,
        qp: Qp,
        look: impl Fn(QpState, Option<Vec<u8>>) -> Option<T>,
    ) -> Result<T, SetUpError> {
        poll_fn(|_| {
            let found = self.with(|verbs| {
                let message = verbs.poll_message(qp);
                alive(verbs.state(qp)).and_then(|state| {
                    let found = look(state, message);
                    if found.is_none() {
                        verbs.ended()?;
                    }
                    Ok(found)
                })
            })?;
            found.transpose().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
