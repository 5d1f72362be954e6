//! The message channels of one thread ([`rma_channel`]), with a clock and a way to wait.
//!
//! A channel's ends issue through a [`Link`] and are told the time. Here is a link over a
//! [`Portal`], the time, and how a thread waits ([`crate::wait`]): for room, for what became of a
//! message, for a message. Who waits for messages sleeps if events tell of them ([`Blocking`]), and
//! else goes on looking.
//!
//! Invariant: whoever waits tends all ends that it was given, so that what they have gathered goes
//! on its way, and tails are told.

pub mod futures;

use core::time::Duration;

use rma_channel::{
    Claim, Link, Message, ReceiveError, Receiver, SendError, SendHandle, SendState, Sender,
    receiver::Blocking,
};
use rma_core::{
    executor::{CallStatus, CommandExecutor, ExecutorConfig, ExecutorConfigError},
    time::{Clock, Instant},
};
use thiserror::Error;

use crate::{
    clock::TscClock,
    error::WaitError,
    home::Home,
    idle::IdlePolicy,
    lease::PortalLease,
    portal::{Portal, WAIT},
    sleep::Sleep,
    wait::{Look, Place, wait},
};

/// How long a thread that waits for room sleeps at most: its receiver tells of it by writing to
/// memory, which wakes nobody.
const LOOK: Duration = Duration::from_millis(1);

/// The reason why a message was not sent, or none came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The sender's end refuses it, or has failed.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The receiver's end has failed.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// A message was sent and not accepted: it was not published, and will not be; or it may be and
    /// nobody knows ([`CallStatus::Unknown`]).
    #[error("the message ended with {0}; the channel is broken for its sender: set it up anew")]
    NotAccepted(CallStatus),
    /// Nothing more can come: the engine is gone, or inline.
    #[error(transparent)]
    Wait(#[from] WaitError),
}

/// The link of a thread's channel ends, and how the thread waits for them. It belongs to one thread
/// at a time and may be sent to another.
///
/// The crate `rma-xdp` shows it at work: an RPC whose two threads sleep while there is nothing to
/// do.
#[derive(Debug)]
pub struct Channels {
    // Dropped in this order.
    link: Link,
    lease: PortalLease,
    clock: TscClock,
    idle: IdlePolicy,
}

impl Channels {
    /// Of ends that issue through `portal`, of which nothing may be under way.
    /// `Host::executor_config` of the crate `rma-xdp` has settings that suit the host.
    ///
    /// # Errors
    /// The first setting that cannot work, with its value and the rule.
    pub fn new(portal: Portal, config: ExecutorConfig) -> Result<Self, ExecutorConfigError> {
        let (rings, lease) = portal.into_parts();
        let link = Link::new(CommandExecutor::new(rings, config)?);
        Ok(Self { link, lease, clock: TscClock::new(), idle: WAIT })
    }

    /// Sets how the thread waits from now on: see [`Portal::set_idle`], whose default is this
    /// one's.
    pub const fn set_idle(&mut self, idle: IdlePolicy) {
        self.idle = idle;
    }

    /// The link and the time, for what ends do without waiting.
    pub fn link(&mut self) -> (&mut Link, Instant) {
        let now = self.clock.now();
        (&mut self.link, now)
    }

    /// Takes the completions that there are and issues what may be issued ([`Link::poll`]). Returns
    /// how much there was to do.
    pub fn poll(&mut self) -> usize {
        self.link.poll(self.clock.now())
    }

    /// Sends a message as soon as there is room for it. The bytes are copied.
    ///
    /// # Errors
    /// As [`Sender::send`], but for want of room; and if there will be none, as the engine is gone
    /// or inline.
    pub fn send<S: Sender + ?Sized>(
        &mut self,
        sender: &mut S,
        message: &[u8],
    ) -> Result<SendHandle, ChannelError> {
        self.wait(|link, now| {
            sender.poll(link, now)?;
            match sender.send(link, now, message) {
                Ok(handle) => Ok(Some(handle)),
                Err(SendError::Full) => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// Waits until it is known what became of a message: [`SendState::Accepted`] or more, or
    /// [`SendState::Failed`].
    ///
    /// # Errors
    /// If the engine is gone or inline.
    pub fn sent<S: Sender + ?Sized>(
        &mut self,
        sender: &mut S,
        handle: SendHandle,
    ) -> Result<SendState, ChannelError> {
        self.wait(|link, now| {
            // On a broken channel `test` still reports how each message ended.
            let _ = sender.poll(link, now);
            let state = sender.test(handle);
            Ok((state != SendState::Sending).then_some(state))
        })
    }

    /// Waits for the next message, and sleeps until an event tells of one if it takes long.
    /// `senders` are tended: all of this thread's that may have something under way.
    ///
    /// # Errors
    /// As [`Receiver::poll`] and [`rma_channel::Claims::claim`], for a sender as [`Sender::poll`];
    /// and if no message can come, as the engine is gone or inline.
    pub fn recv<'a, R: Receiver + Blocking>(
        &mut self,
        receiver: &'a mut R,
        senders: &mut [&mut dyn Sender],
    ) -> Result<Message<'a, R>, ChannelError> {
        let claim = self.claim(receiver, senders, None, None)?;
        Ok(Message::of(receiver, claim.expect("only a time that comes ends a wait without one")))
    }

    /// [`Channels::recv`] for no longer than `timeout`: `None` if there is no message by then.
    ///
    /// # Errors
    /// As [`Channels::recv`].
    pub fn recv_timeout<'a, R: Receiver + Blocking>(
        &mut self,
        receiver: &'a mut R,
        senders: &mut [&mut dyn Sender],
        timeout: Duration,
    ) -> Result<Option<Message<'a, R>>, ChannelError> {
        let claim = self.claim(receiver, senders, Some(timeout), None)?;
        Ok(claim.map(|claim| Message::of(receiver, claim)))
    }

    /// Waits for the next message of a channel whose memory alone says that one has come: once it
    /// sleeps, it looks every `interval`. `senders` as for [`Channels::recv`].
    ///
    /// # Errors
    /// As [`Channels::recv`].
    pub fn recv_every<'a, R: Receiver + ?Sized>(
        &mut self,
        receiver: &'a mut R,
        senders: &mut [&mut dyn Sender],
        interval: Duration,
    ) -> Result<Message<'a, R>, ChannelError> {
        let claim = self.claim(receiver, senders, None, Some(interval))?;
        Ok(Message::of(receiver, claim.expect("only a time that comes ends a wait without one")))
    }

    /// Waits until there is a message, for no longer than `timeout`. `every`: how long it may sleep
    /// though nothing wakes it.
    fn claim<R: Receiver + ?Sized>(
        &mut self,
        receiver: &mut R,
        senders: &mut [&mut dyn Sender],
        timeout: Option<Duration>,
        every: Option<Duration>,
    ) -> Result<Option<Claim>, ChannelError> {
        wait(self, timeout, |channels| {
            let looked = channels.look(|link, now| {
                for sender in &mut *senders {
                    sender.poll(link, now)?;
                }
                receiver.poll(link, now)?;
                Ok(receiver.claim()?)
            })?;
            let Look::Idle(_) = looked else { return Ok(looked) };
            let wakes = senders.iter().filter_map(|it| it.poll_timeout());
            let wakes = wakes.chain(receiver.poll_timeout());
            Ok(Look::Idle(wakes.chain(every.map(|every| channels.looked_at() + every)).min()))
        })
    }

    /// Waits until `look` has something: what became of messages, or room for them, of which
    /// nothing tells but memory.
    fn wait<T>(
        &mut self,
        mut look: impl FnMut(&mut Link, Instant) -> Result<Option<T>, ChannelError>,
    ) -> Result<T, ChannelError> {
        let found = wait(self, None, |channels| match channels.look(&mut look)? {
            Look::Idle(_) => Ok(Look::Idle(Some(channels.looked_at() + LOOK))),
            looked => Ok::<_, ChannelError>(looked),
        })?;
        Ok(found.expect("only a time that comes ends a wait without one"))
    }

    /// Looks once, between two polls of the link.
    fn look<T>(
        &mut self,
        look: impl FnOnce(&mut Link, Instant) -> Result<Option<T>, ChannelError>,
    ) -> Result<Look<T>, ChannelError> {
        let now = self.clock.now();
        let work = self.link.poll(now);
        let found = look(&mut self.link, now);
        // Also if the look failed: what other ends have gathered goes on its way.
        let work = work + self.link.poll(now);
        Ok(Look::of(found?, work))
    }
}

impl Place for Channels {
    fn is_of(&self, home: &dyn Home) -> bool {
        self.lease.is_of(home)
    }

    fn hopeless(&self) -> Result<(), WaitError> {
        self.lease.ended()
    }

    fn looked_at(&self) -> Instant {
        self.clock.last()
    }

    fn next_at(&self) -> Option<Instant> {
        self.link.poll_timeout()
    }

    fn idle(&self) -> IdlePolicy {
        self.idle
    }

    fn sleep(&mut self) -> Option<Sleep> {
        self.lease.sleep().cloned()
    }
}

#[cfg(test)]
pub(crate) mod tests;
