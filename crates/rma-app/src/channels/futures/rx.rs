//! The receiver's end of a channel, and its messages, as futures: [`Rx`], [`Received`].
//!
//! While somebody waits, whoever polls takes the next message and keeps it here; the future that
//! gives it to the application takes it from here. So none is lost with a future that is dropped.

use core::{
    fmt,
    future::poll_fn,
    mem,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rma_channel::{Blocking, Claim, Claims, Link, Peer, ReceiveError, Receiver};
use rma_core::{
    gate::{Gate, Refused},
    time::Instant,
};

use super::state::{End, State};
use crate::{
    channels::ChannelError,
    error::WaitError,
    polling::{
        handle::Handle,
        shared::{After, Polled as _},
    },
};

/// Whether something has come that a receiver has not looked at.
type HasEvent<R> = fn(&R) -> bool;

/// A receiver, and its waiter.
pub(super) struct RxEnd<R>(Mutex<Inner<R>>);

struct Inner<R> {
    receiver: R,
    /// The next message, which was taken for somebody who is gone, or has not been polled.
    ready: Option<Claim>,
    /// The last error that it returned.
    failed: Option<ReceiveError>,
    /// Of the one future that waits.
    waiting: Option<(Waker, HasEvent<R>)>,
    /// Its handle is gone.
    is_closed: bool,
}

impl<R> RxEnd<R> {
    pub(super) const fn new(receiver: R) -> Self {
        let (ready, failed, waiting, is_closed) = (None, None, None, false);
        Self(Mutex::new(Inner { receiver, ready, failed, waiting, is_closed }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner<R>> {
        // Nothing but a bug panics under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Claims> Inner<R> {
    /// The next message, if it has come.
    fn claim(&mut self) -> Result<Option<Claim>, ReceiveError> {
        if let Some(claim) = self.ready.take() {
            return Ok(Some(claim));
        }
        match (self.receiver.claim()?, self.failed) {
            (None, Some(failed)) => Err(failed),
            (claim, _) => Ok(claim),
        }
    }
}

impl<R: Receiver + Send> End for RxEnd<R> {
    fn tend(
        &self,
        link: &mut Link,
        now: Instant,
        gone: Option<WaitError>,
        after: &mut After,
    ) -> usize {
        let mut inner = self.lock();
        inner.failed = inner.receiver.poll(link, now).err();
        if inner.waiting.is_none() {
            return 0;
        }
        let claimed = inner.claim();
        // An error stays: its future finds it.
        let has_come = !matches!(claimed, Ok(None));
        inner.ready = claimed.ok().flatten();
        if !has_come && gone.is_none() {
            return 0;
        }
        after.wakers.extend(inner.waiting.take().map(|(waker, _)| waker));
        1
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.lock().receiver.poll_timeout()
    }

    fn has_news(&self) -> bool {
        let inner = self.lock();
        inner.waiting.as_ref().is_some_and(|(_, has_event)| has_event(&inner.receiver))
    }

    fn is_over(&self) -> bool {
        self.lock().is_closed
    }
}

/// A receiver's end of a channel, whose messages are awaited: [`AsyncChannels::receiver`].
///
/// [`AsyncChannels::receiver`]: super::AsyncChannels::receiver
#[derive(Debug)]
pub struct Rx<R> {
    handle: Arc<Handle<State>>,
    end: Arc<RxEnd<R>>,
}

impl<R: Receiver + Send + 'static> Rx<R> {
    pub(super) const fn new(handle: Arc<Handle<State>>, end: Arc<RxEnd<R>>) -> Self {
        Self { handle, end }
    }

    /// The next message, when it comes, of a channel whose events tell of messages: they wake
    /// whoever polls, and that one the future. It waits for as long as nobody sends.
    ///
    /// A future that is dropped loses none.
    ///
    /// # Errors
    /// As [`Receiver::poll`] and [`Claims::claim`]; and if no message can come, as the engine is
    /// gone. What came before is received first.
    pub async fn recv(&mut self) -> Result<Received<R>, ChannelError>
    where
        R: Blocking,
    {
        let waits = Waits(self);
        poll_fn(|context| waits.0.poll_with(context, |it| it.queue().has_event())).await
    }

    /// The next message of a channel whose memory alone says that one has come: looks at once, and
    /// then each time that `sleep`, which the caller's timers make, has slept for `interval`; and
    /// whenever somebody polls for another reason.
    ///
    /// ```no_run
    /// # use core::time::Duration;
    /// # use rma_xdp::channel::{ChannelError, Rx, ring_buffer::without_zeroing::Receiver};
    /// # mod tokio { pub mod time { pub async fn sleep(_: core::time::Duration) {} } }
    /// # async fn first(ring: &mut Rx<Receiver>) -> Result<Vec<u8>, ChannelError> {
    /// let message = ring.recv_every(Duration::from_micros(100), tokio::time::sleep).await?;
    /// # Ok(message.to_vec())
    /// # }
    /// ```
    ///
    /// A future that is dropped loses no message.
    ///
    /// # Errors
    /// As [`Rx::recv`].
    pub async fn recv_every<F: Future<Output = ()>>(
        &mut self,
        interval: Duration,
        mut sleep: impl FnMut(Duration) -> F,
    ) -> Result<Received<R>, ChannelError> {
        let waits = Waits(self);
        let mut nap = pin!(sleep(interval));
        poll_fn(|context| {
            let polled = waits.0.poll_with(context, |_| false);
            if polled.is_pending() && nap.as_mut().poll(context).is_ready() {
                nap.set(sleep(interval));
                context.waker().wake_by_ref();
            }
            polled
        })
        .await
    }

    /// The next message, if it has come, whatever tells of it; for tasks that look when they like.
    /// If none has, this task is woken when somebody who polls finds one; but nobody wakes up to
    /// look for it.
    ///
    /// # Errors
    /// As [`Rx::recv`].
    pub fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Received<R>, ChannelError>> {
        self.poll_with(context, |_| false)
    }

    /// Does something that receivers of this kind alone do, such as to admit a sender, or to take
    /// back what dead ones had reserved (`poll_recovery`). Messages are for futures to take.
    ///
    /// Nothing of these channels may be used or dropped in it but what it is given: no end, future
    /// or message. It has their lock.
    ///
    /// # Errors
    /// If the engine is the parent's of this process ([`WaitError::Forked`]).
    pub fn with<T>(
        &mut self,
        act: impl FnOnce(&mut R, &mut Link, Instant) -> T,
    ) -> Result<T, WaitError> {
        let done = self.handle.shared().with(|state, after| {
            let (link, now) = state.link();
            let done = act(&mut self.end.lock().receiver, link, now);
            state.turn(after);
            done
        });
        Ok(done?)
    }

    /// Drops it, and gives back what it has registered at its host: see [`rma_channel::close`].
    ///
    /// # Errors
    /// If the host refuses: then the rest stays registered. In a child of this process, whose own
    /// nothing of it is.
    pub fn close(self, host: &dyn Gate) -> Result<(), Refused> {
        self.handle.shared().check_process().map_err(Refused::new)?;
        let mut registered = mem::take(self.end.lock().receiver.registered());
        drop(self);
        registered.give_back(host)
    }

    fn poll_with(
        &self,
        context: &Context<'_>,
        has_event: HasEvent<R>,
    ) -> Poll<Result<Received<R>, ChannelError>> {
        let polled = self.handle.shared().with(|state, after| {
            // A future that is being polled need not be woken.
            let last = self.end.lock().waiting.take();
            after.unused.extend(last.map(|(waker, _)| waker));
            state.turn(after);
            let mut inner = self.end.lock();
            match (inner.claim(), state.gone()) {
                (Ok(Some(claim)), _) => Poll::Ready(Ok(claim)),
                (Err(error), _) => Poll::Ready(Err(error.into())),
                (Ok(None), Some(gone)) => Poll::Ready(Err(gone.into())),
                (Ok(None), None) => {
                    inner.waiting = Some((context.waker().clone(), has_event));
                    Poll::Pending
                }
            }
        });
        polled.map_err(WaitError::from)?.map_ok(|claim| Received {
            claim: Some(claim),
            handle: self.handle.clone(),
            end: self.end.clone(),
        })
    }
}

impl<R> Drop for Rx<R> {
    fn drop(&mut self) {
        if self.handle.shared().check_process().is_err() {
            return;
        }
        // Dropped without a lock: with its last waker, a task may go.
        let last = {
            let mut inner = self.end.lock();
            inner.is_closed = true;
            inner.waiting.take()
        };
        drop(last);
        self.handle.shared().with_own(|state, after| _ = state.turn(after));
    }
}

/// A future that waits. Nobody does when it is dropped.
struct Waits<'a, R>(&'a mut Rx<R>);

impl<R> Drop for Waits<'_, R> {
    fn drop(&mut self) {
        // Dropped without a lock: with its last waker, a task may go.
        if self.0.handle.shared().check_process().is_ok() {
            let last = self.0.end.lock().waiting.take();
            drop(last);
        }
    }
}

/// A message of an [`Rx`] that has come. It is given back when it is dropped, and until then it
/// takes room in the channel. It may be kept, and dropped in any order and thread.
#[must_use = "a message that is dropped is given back"]
pub struct Received<R: Claims> {
    claim: Option<Claim>,
    handle: Arc<Handle<State>>,
    end: Arc<RxEnd<R>>,
}

impl<R: Claims> Received<R> {
    /// How many bytes it has; at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no message is empty")]
    pub fn len(&self) -> usize {
        self.claim.as_ref().map_or(0, Claim::len)
    }

    /// Returns the authenticated sender, if the channel has several.
    #[must_use]
    pub fn sender(&self) -> Option<Peer> {
        self.claim.as_ref().and_then(Claim::sender)
    }

    /// Copies the message into the beginning of `bytes`. Returns how many bytes it has: of a
    /// message longer than `bytes` the rest is left out. None in a child of this process, where the
    /// message is its parent's.
    pub fn copy_to(&self, bytes: &mut [u8]) -> usize {
        match &self.claim {
            Some(claim) if self.handle.shared().check_process().is_ok() => {
                self.end.lock().receiver.read(claim, 0, bytes);
                self.len()
            }
            _ => 0,
        }
    }

    /// The message's bytes, copied.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        let copied = self.copy_to(&mut bytes);
        bytes.truncate(copied);
        bytes
    }
}

impl<R: Claims> Drop for Received<R> {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take() else { return };
        self.handle.shared().with_own(|state, after| {
            self.end.lock().receiver.free(claim);
            // The sender may have to be told.
            state.turn(after);
        });
    }
}

impl<R: Claims> fmt::Debug for Received<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Received").field(&self.claim).finish()
    }
}

impl<R> fmt::Debug for RxEnd<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RxEnd").finish_non_exhaustive()
    }
}
