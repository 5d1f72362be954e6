//! The sender's end of a channel as futures: [`Tx`].
//!
//! What waits for room waits here, in the order of coming, and whoever polls sends it: no room
//! stays empty because a future is not polled.
//!
//! Invariant: a buffer that the channel sends from stays here until it is known what became of its
//! message, or the engine has ended, whether or not its future still exists.

use core::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rma_channel::{Link, SendError, SendHandle, SendRegion, SendState, Sender};
use rma_core::{
    gate::{Gate, Refused},
    time::Instant,
};

use super::state::{End, State};
use crate::{
    buffer::{Bufs, RegionBuf},
    channels::ChannelError,
    error::WaitError,
    polling::{
        handle::Handle,
        shared::{After, Polled as _},
    },
};

/// Sends a buffer: of a channel that can send from it.
type SendsBuf<S> = fn(&mut S, &mut Link, Instant, &RegionBuf) -> Result<SendHandle, SendError>;

/// The order of a future.
enum Order<S> {
    /// To send these bytes: over when they are taken.
    Bytes(Box<[u8]>),
    /// To send this buffer: over when it is known what became of it.
    Buf(RegionBuf, SendsBuf<S>),
    /// To know what became of a message.
    Sent(SendHandle),
}

/// The result of a message.
type Ended = Result<(SendHandle, SendState), ChannelError>;

/// A future's task, which waits here.
struct Task<S> {
    order: Order<S>,
    /// Its message, once that was taken.
    handle: Option<SendHandle>,
    /// The result of which its future has not been told.
    ended: Option<Ended>,
    waker: Option<Waker>,
    /// Its future is gone.
    is_dropped: bool,
}

impl<S> Task<S> {
    const fn new(order: Order<S>) -> Self {
        let handle = match &order {
            Order::Sent(handle) => Some(*handle),
            Order::Bytes(_) | Order::Buf(..) => None,
        };
        Self { order, handle, ended: None, waker: None, is_dropped: false }
    }

    /// Whether the channel sends from its buffer.
    const fn lends(&self) -> bool {
        matches!(self.order, Order::Buf(..)) && self.handle.is_some() && self.ended.is_none()
    }

    fn into_buf(self) -> Option<RegionBuf> {
        match self.order {
            Order::Buf(buf, _) => Some(buf),
            Order::Bytes(_) | Order::Sent(_) => None,
        }
    }
}

impl<S: Sender> Task<S> {
    /// Goes on as far as it can. `blocked`: why nothing can be sent, to which is added that the
    /// channel is full. Returns whether it got any further.
    fn advance(
        &mut self,
        sender: &mut S,
        link: &mut Link,
        now: Instant,
        blocked: &mut Option<SendError>,
    ) -> bool {
        if self.ended.is_some() {
            return false;
        }
        let sent = match (self.handle, &self.order) {
            (Some(handle), _) | (None, &Order::Sent(handle)) => {
                // On a broken channel `test` still reports how each message ended.
                let state = sender.test(handle);
                if state != SendState::Sending {
                    self.ended = Some(Ok((handle, state)));
                }
                return self.ended.is_some();
            }
            (None, Order::Bytes(bytes)) => {
                blocked.map_or_else(|| sender.send(link, now, bytes), Err)
            }
            (None, Order::Buf(buf, send)) => {
                blocked.map_or_else(|| send(sender, link, now, buf), Err)
            }
        };
        match sent {
            Ok(handle) => {
                self.handle = Some(handle);
                if let Order::Bytes(_) = self.order {
                    self.ended = Some(Ok((handle, SendState::Sending)));
                }
            }
            Err(SendError::Full) => *blocked = Some(SendError::Full),
            Err(error) => self.ended = Some(Err(error.into())),
        }
        self.handle.is_some() || self.ended.is_some()
    }
}

/// A sender, and what waits for it.
pub(super) struct TxEnd<S>(Mutex<Inner<S>>);

struct Inner<S> {
    sender: S,
    /// By the order of their coming.
    tasks: BTreeMap<u64, Task<S>>,
    /// How many there were.
    come: u64,
    /// The last error that it returned.
    failed: Option<SendError>,
    /// Its handle is gone, and so all futures.
    is_closed: bool,
}

impl<S> TxEnd<S> {
    pub(super) fn new(sender: S) -> Self {
        let (tasks, come, failed, is_closed) = (BTreeMap::new(), 0, None, false);
        Self(Mutex::new(Inner { sender, tasks, come, failed, is_closed }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        // Nothing but a bug panics under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Inner<S> {
    /// Whether somebody waits for room.
    fn has_line(&self) -> bool {
        self.tasks.values().any(|task| task.handle.is_none() && task.ended.is_none())
    }
}

impl<S> Drop for Inner<S> {
    fn drop(&mut self) {
        // Only if nobody can wait for them: an inline engine, or no thread could be started. They
        // stay out of their pools for good.
        for (_, task) in mem::take(&mut self.tasks) {
            if task.lends() {
                mem::forget(task.into_buf());
            }
        }
    }
}

impl<S: Sender + Send> End for TxEnd<S> {
    fn tend(
        &self,
        link: &mut Link,
        now: Instant,
        gone: Option<WaitError>,
        after: &mut After,
    ) -> usize {
        let mut inner = self.lock();
        let Inner { sender, tasks, failed, .. } = &mut *inner;
        *failed = sender.poll(link, now).err();
        let (mut work, mut blocked) = (0, *failed);
        for task in tasks.values_mut() {
            work += usize::from(task.advance(sender, &mut *link, now, &mut blocked));
            if let (None, Some(gone)) = (&task.ended, gone) {
                task.ended = Some(Err(gone.into()));
            }
            if task.ended.is_some() {
                after.wakers.extend(task.waker.take());
            }
        }
        let ended = tasks.extract_if(.., |_, task| task.is_dropped && task.ended.is_some());
        after.buffers.extend(ended.filter_map(|(_, task)| task.into_buf()).map(Bufs::One));
        work
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.lock().sender.poll_timeout()
    }

    fn waits_for_memory(&self) -> bool {
        self.lock().tasks.values().any(|task| task.ended.is_none())
    }

    fn is_over(&self) -> bool {
        let inner = self.lock();
        inner.is_closed && inner.tasks.is_empty()
    }
}

/// A sender's end of a channel, whose messages are sent by futures: [`AsyncChannels::sender`].
///
/// Any number of futures may be under way. Their messages are sent in the order in which the
/// futures are first polled; nobody who waits for room is passed. It is dropped with what it has
/// taken and not issued yet, so ask for the end of its last message before ([`Tx::sent`]).
///
/// [`AsyncChannels::sender`]: super::AsyncChannels::sender
#[derive(Debug)]
pub struct Tx<S> {
    handle: Arc<Handle<State>>,
    end: Arc<TxEnd<S>>,
}

impl<S: Sender + Send + 'static> Tx<S> {
    pub(super) const fn new(handle: Arc<Handle<State>>, end: Arc<TxEnd<S>>) -> Self {
        Self { handle, end }
    }

    /// Sends a message out of a buffer, without a copy, as soon as there is room for it. Comes to
    /// the buffer, when the message is accepted or has failed.
    ///
    /// The message is what the buffer has behind its first [`Tx::beside`]`.0` bytes, which is all
    /// of it unless the channel writes something there.
    ///
    /// A future that is dropped while it waits for room sends nothing. One that is dropped later
    /// has sent its message, and the buffer goes back to its pool when the channel is done with it.
    ///
    /// # Errors
    /// As [`SendRegion::send_region`], but for want of room: then nothing was sent. As
    /// [`ChannelError::NotAccepted`] if it was, and not accepted; and if nothing more can be known,
    /// as the engine is gone.
    pub const fn send(&self, buf: RegionBuf) -> SendBuf<'_, S>
    where
        S: SendRegion,
    {
        SendBuf { pending: self.pend(Order::Buf(buf, send_buf)) }
    }

    /// Sends a message, whose bytes are copied, as soon as there is room for it. What became of it
    /// then tells [`Tx::sent`].
    ///
    /// A future that is dropped before its end has sent nothing, unless its message was taken since
    /// it was last polled.
    ///
    /// # Errors
    /// As [`Sender::send`], but for want of room; and if there will be none, as the engine is gone.
    pub async fn send_bytes(&self, message: &[u8]) -> Result<SendHandle, ChannelError> {
        let taken = self.handle.shared().with(|state, after| {
            state.turn(after);
            if let Some(gone) = state.gone() {
                return Err(gone.into());
            }
            let mut inner = self.end.lock();
            if inner.has_line() {
                return Ok(None);
            }
            let (link, now) = state.link();
            let sent = inner.failed.map_or_else(|| inner.sender.send(link, now, message), Err);
            drop(inner);
            state.issue(now);
            match sent {
                Ok(handle) => Ok(Some(handle)),
                Err(SendError::Full) => Ok(None),
                Err(error) => Err(ChannelError::from(error)),
            }
        });
        if let Some(handle) = taken.map_err(WaitError::from)?? {
            return Ok(handle);
        }
        let (ended, _) = self.pend(Order::Bytes(message.into())).await;
        ended.map(|(handle, _)| handle)
    }

    /// Waits until the fate of a message is known: [`SendState::Accepted`] or more, or
    /// [`SendState::Failed`].
    ///
    /// # Errors
    /// If it cannot be known, as the engine is gone.
    pub async fn sent(&self, handle: SendHandle) -> Result<SendState, ChannelError> {
        let (ended, _) = self.pend(Order::Sent(handle)).await;
        ended.map(|(_, state)| state)
    }

    /// Does something that senders of this kind alone do.
    ///
    /// Nothing of these channels may be used or dropped in it but what it is given: no end, future
    /// or message. It has their lock.
    ///
    /// # Errors
    /// If the engine is the parent's of this process ([`WaitError::Forked`]).
    pub fn with<T>(
        &self,
        act: impl FnOnce(&mut S, &mut Link, Instant) -> T,
    ) -> Result<T, WaitError> {
        let done = self.handle.shared().with(|state, after| {
            let (link, now) = state.link();
            let done = act(&mut self.end.lock().sender, link, now);
            state.turn(after);
            done
        });
        Ok(done?)
    }

    /// How many bytes before a message, and behind it, padded to 8, the channel writes beside one
    /// that is sent out of a buffer; see [`Outgoing::beside`](rma_channel::Outgoing::beside). If
    /// there are any, buffers are to begin at multiples of 8 of their region. None in a child of
    /// this process, which sends nothing.
    #[must_use]
    pub fn beside(&self) -> (u64, u64) {
        self.handle.shared().check_process().map_or((0, 0), |()| self.end.lock().sender.beside())
    }

    /// The longest message, in bytes: 0 in a child of this process.
    #[must_use]
    pub fn len_max(&self) -> u32 {
        self.handle.shared().check_process().map_or(0, |()| self.end.lock().sender.len_max())
    }

    /// Drops it, and gives back what it has registered at its host: see [`rma_channel::close`].
    ///
    /// # Errors
    /// If the host refuses: then the rest stays registered. In a child of this process, whose own
    /// nothing of it is.
    pub fn close(self, host: &dyn Gate) -> Result<(), Refused> {
        self.handle.shared().check_process().map_err(Refused::new)?;
        let mut registered = mem::take(self.end.lock().sender.registered());
        drop(self);
        registered.give_back(host)
    }

    const fn pend(&self, order: Order<S>) -> Pending<'_, S> {
        Pending { tx: self, phase: Phase::New(order) }
    }
}

impl<S> Drop for Tx<S> {
    fn drop(&mut self) {
        self.handle.shared().with_own(|state, after| {
            self.end.lock().is_closed = true;
            state.turn(after);
        });
    }
}

fn send_buf<S: SendRegion>(
    sender: &mut S,
    link: &mut Link,
    now: Instant,
    buf: &RegionBuf,
) -> Result<SendHandle, SendError> {
    let (before, behind) = sender.beside();
    let (region, range) = buf.message(before, behind)?;
    sender.send_region(link, now, region, range)
}

/// A future that gives its order when it is first polled, and gives it up when it is dropped.
struct Pending<'a, S: Sender + Send + 'static> {
    tx: &'a Tx<S>,
    phase: Phase<S>,
}

enum Phase<S> {
    New(Order<S>),
    /// The task's number.
    Begun(u64),
    Done,
}

impl<S: Sender + Send> Future for Pending<'_, S> {
    type Output = (Ended, Option<RegionBuf>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { tx, phase } = &mut *self;
        if let Err(forked) = tx.handle.shared().check_process()
            && let Phase::New(_) = phase
            && let Phase::New(order) = mem::replace(phase, Phase::Done)
        {
            let buf = Task::new(order).into_buf();
            return Poll::Ready((Err(WaitError::from(forked).into()), buf));
        }
        let polled = tx.handle.shared().with(|state, after| {
            let number = match mem::replace(phase, Phase::Done) {
                Phase::New(order) => {
                    let mut inner = tx.end.lock();
                    inner.come += 1;
                    let number = inner.come;
                    inner.tasks.insert(number, Task::new(order));
                    number
                }
                Phase::Begun(number) => number,
                Phase::Done => panic!("a future is not polled after its end"),
            };
            let last = tx.end.lock().tasks.get_mut(&number).and_then(|task| task.waker.take());
            // A future that is being polled need not be woken.
            after.unused.extend(last);
            state.turn(after);
            let mut inner = tx.end.lock();
            let task = inner.tasks.get_mut(&number).expect("its future exists");
            let Some(ended) = task.ended.take() else {
                task.waker = Some(context.waker().clone());
                *phase = Phase::Begun(number);
                return Poll::Pending;
            };
            let buf = inner.tasks.remove(&number).and_then(Task::into_buf);
            Poll::Ready((ended, buf))
        });
        // Begun by the parent, which has the buffer: it is over there alone.
        polled.unwrap_or(Poll::Pending)
    }
}

impl<S: Sender + Send> Drop for Pending<'_, S> {
    fn drop(&mut self) {
        let Phase::Begun(number) = self.phase else { return };
        self.tx.handle.shared().with_own(|state, after| {
            {
                let mut inner = self.tx.end.lock();
                let Some(task) = inner.tasks.get_mut(&number) else { return };
                after.unused.extend(task.waker.take());
                task.is_dropped = true;
                if !task.lends() {
                    let buf = inner.tasks.remove(&number).and_then(Task::into_buf);
                    after.buffers.extend(buf.map(Bufs::One));
                }
            }
            // Others may have waited for this one.
            state.turn(after);
        });
    }
}

/// Sends a message out of a buffer: [`Tx::send`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct SendBuf<'a, S: Sender + Send + 'static> {
    pending: Pending<'a, S>,
}

impl<S: Sender + Send> Future for SendBuf<'_, S> {
    type Output = (Result<(), ChannelError>, RegionBuf);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.pending).poll(context).map(|(ended, buf)| {
            let sent = ended.and_then(|(_, state)| match state {
                SendState::Failed(status) => Err(ChannelError::NotAccepted(status)),
                SendState::Sending | SendState::Accepted | SendState::Processed => Ok(()),
            });
            (sent, buf.expect("what sends a buffer has it"))
        })
    }
}

impl<S: Sender + Send> fmt::Debug for SendBuf<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBuf").finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for TxEnd<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxEnd").finish_non_exhaustive()
    }
}
