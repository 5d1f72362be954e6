//! Message channels as futures, on any async executor or none: [`AsyncChannels`], and its ends,
//! [`Tx`] and [`Rx`].
//!
//! # Who makes progress
//!
//! The ends lie in a state that all futures share. Whoever polls one future, or polls between them,
//! tends all ends: issues what they have gathered, tells tails, takes messages, sends what waits
//! for room. So no end depends on its own future being polled. Between futures somebody must poll:
//! a thread of the channels' own ([`AsyncChannels::start`]), a thread of the application's
//! ([`AsyncChannels::poller`]), or the thread that blocks on a future
//! ([`AsyncChannels::block_on`]), as with a [`Client`](crate::Client).
//!
//! # Futures that are dropped
//!
//! A message that was claimed for a future which is gone stays with its channel, for the next one.
//! A message that waits for room when its future is dropped is not sent, ever; one that was taken
//! goes on its way, once, and its buffer goes back to its pool when the channel is done with it.

mod rx;
mod state;
mod tx;

use core::pin::pin;
use std::sync::Arc;

use rma_channel::{Receiver, Sender};

use self::{rx::RxEnd, state::State, tx::TxEnd};
pub use self::{
    rx::{Received, Rx},
    tx::{SendBuf, Tx},
};
use super::Channels;
use crate::{
    error::{StartError, WaitError},
    polling::{
        handle::{Handle, Poller},
        seat::block_on,
        shared::Polled as _,
    },
};

/// The message channels of one link, as futures. Clones share it; they and the ends may be used in
/// any thread.
///
/// A request and its answer, both ends of one link:
///
/// ```
/// use rma_xdp::channel::{
///     ChannelError, Rx, Tx,
///     write_slot::immediate::{Receiver, Sender},
/// };
///
/// async fn ask(to: &Tx<Sender>, from: &mut Rx<Receiver>) -> Result<Vec<u8>, ChannelError> {
///     to.send_bytes(b"what?").await?; // waits for room, if there is none
///     Ok(from.recv().await?.to_vec()) // woken by the message's event
/// }
///
/// async fn answer(from: &mut Rx<Receiver>, to: &Tx<Sender>) -> Result<(), ChannelError> {
///     let question = from.recv().await?.to_vec();
///     let handle = to.send_bytes(&question.to_ascii_uppercase()).await?;
///     to.sent(handle).await?; // it has arrived
///     Ok(())
/// }
/// # use rma_xdp::{
/// #     Host, HostConfig,
/// #     channel::{AsyncChannels, Channels, Peer, Terms, write_slot::SlotConfig},
/// # };
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let hosts = [57, 58].map(|it| Host::open(HostConfig::udp([127, 0, 0, it])).unwrap());
/// # let address = |it: usize| [127, 0, 0, 57 + it as u8].into();
/// # let peers = [0, 1].map(|it| Peer { address: address(it), pid: hosts[it].pid() });
/// # let open = |it: usize| {
/// #     let portal = hosts[it].portal(8).unwrap();
/// #     let host = hosts[it].waking(&portal);
/// #     let config = SlotConfig::with_peer(peers[1 - it]);
/// #     let sender = Sender::open(&host, config).unwrap();
/// #     let receiver = Receiver::open(&host, config).unwrap();
/// #     (Channels::new(portal, hosts[it].executor_config()).unwrap(), sender, receiver)
/// # };
/// # let (mine, theirs) = (open(0), open(1));
/// # let terms = [mine.1.terms().to_bytes(), mine.2.terms().to_bytes()];
/// # let from = |bytes: &[u8]| Terms::from_bytes(bytes).unwrap();
/// # let terms_there = [theirs.1.terms().to_bytes(), theirs.2.terms().to_bytes()];
/// # let (channels, sender, receiver) = mine;
/// # let sender = sender.connect(&from(&terms_there[1]))?;
/// # let receiver = receiver.connect(&from(&terms_there[0]))?;
/// # let (channels_there, sender_there, receiver_there) = theirs;
/// # let sender_there = sender_there.connect(&from(&terms[1]))?;
/// # let receiver_there = receiver_there.connect(&from(&terms[0]))?;
///
/// // On one side. Its thread polls, so that it could run on any executor.
/// let there = AsyncChannels::start(channels_there)?;
/// let (to, mut from) = (there.sender(sender_there), there.receiver(receiver_there));
/// let answers = std::thread::spawn(move || there.block_on(answer(&mut from, &to)));
/// // On the other. The thread that blocks polls.
/// let here = AsyncChannels::new(channels);
/// let (to, mut from) = (here.sender(sender), here.receiver(receiver));
/// assert_eq!(here.block_on(ask(&to, &mut from))??, b"WHAT?");
/// # answers.join().unwrap()??;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AsyncChannels {
    handle: Arc<Handle<State>>,
}

impl AsyncChannels {
    /// Futures of channels that make progress when they are polled, in [`AsyncChannels::block_on`],
    /// and while a [`Poller`] runs. Starts no thread.
    #[must_use]
    pub fn new(channels: Channels) -> Self {
        let sleep = channels.lease.sleep().cloned();
        Self { handle: Arc::new(Handle::new(State::new(channels), sleep)) }
    }

    /// The same with a thread that polls, and sleeps when there is nothing to do, as
    /// [`Channels::set_idle`] said. It ends after the last end and future.
    ///
    /// # Errors
    /// If the engine is inline, or there can be no thread.
    pub fn start(channels: Channels) -> Result<Self, StartError> {
        let channels = Self::new(channels);
        channels.handle.start()?;
        Ok(channels)
    }

    /// Returns the poller that a thread of the application's runs instead of
    /// [`AsyncChannels::start`]'s.
    pub fn poller(&self) -> Poller {
        self.handle.poller()
    }

    /// A sender's end of a channel, which was opened for this link's portal.
    #[must_use]
    pub fn sender<S: Sender + Send + 'static>(&self, sender: S) -> Tx<S> {
        let end = Arc::new(TxEnd::new(sender));
        self.handle.shared().with_own(|state, _| state.add(end.clone()));
        Tx::new(self.handle.clone(), end)
    }

    /// A receiver's end of a channel. Of a kind that events tell of, its queue must be bound to
    /// this link's portal (`Host::waking` of the crate `rma-xdp`).
    #[must_use]
    pub fn receiver<R: Receiver + Send + 'static>(&self, receiver: R) -> Rx<R> {
        let end = Arc::new(RxEnd::new(receiver));
        self.handle.shared().with_own(|state, _| state.add(end.clone()));
        Rx::new(self.handle.clone(), end)
    }

    /// Runs a future to its end on this thread, which tends all ends meanwhile if no other thread
    /// does. It spins, then sleeps, as [`Channels::set_idle`] said. Several threads may do this at
    /// once.
    ///
    /// # Errors
    /// If the engine is inline: poll its futures, [`AsyncChannels::poll`] and the engine by turns.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, WaitError> {
        block_on(self.handle.shared(), pin!(future))
    }

    /// Tends all ends, and wakes the futures that can go on. Returns how much there was to do: in a
    /// child that was forked nothing. For applications that poll in a loop of their own.
    pub fn poll(&self) -> usize {
        self.handle.shared().with(State::turn).unwrap_or(0)
    }

    /// Bytes of messages that senders have copied to send them, since the beginning; in a child
    /// that was forked 0.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        self.handle.shared().with(|state, _| state.link().0.copied_bytes()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
