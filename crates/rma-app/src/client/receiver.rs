//! Messages and events as futures: [`Receiver`], [`Recv`], [`Message`] (not in the paper).

use core::{
    fmt,
    ops::Deref,
    pin::Pin,
    task::{Context, Poll},
};
use std::sync::Arc;

use rma_core::{
    error::ReceiveQueueError,
    receive_queue::{Event, ReceiveQueue, ReceiveQueueLayout},
    region::RegisteredRegion,
};

use super::{inbox::Inbox, tasks::State};
use crate::{error::WaitError, polling::handle::Handle};

/// A receive queue whose events are awaited: [`Client::receiver`](super::Client::receiver).
///
/// Whoever polls for the client watches the queue as well, so one thread, one sleep and one wake-up
/// are for messages and transfers. Events come in the order of the queue.
///
/// ```
/// # use rma_xdp::{
/// #     Client, Transfers, Host, HostConfig, OpType, Permissions, messages::ReceiveQueueLayout,
/// # };
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let sender = Host::open(HostConfig::udp([127, 0, 0, 45]))?;
/// let host = Host::open(HostConfig::udp([127, 0, 0, 46]))?;
/// // Its events wake the portal of the client's executor.
/// let portal = host.portal(16)?;
/// let layout = ReceiveQueueLayout::new(8, 256)?;
/// let queue = host.waking(&portal).receive_queue(layout, Permissions::SEND)?;
/// let client = Client::new(Transfers::new(portal, host.executor_config())?);
/// let mut receiver = client.receiver(queue);
///
/// let grant = host.grant(receiver.region(), [127, 0, 0, 45].into(), sender.pid(), OpType::Send)?;
/// # let sends = std::thread::spawn(move || {
/// #     let client = Client::new(sender.transfers(4).unwrap());
/// #     let mut buf = sender.buffer_pool(1, 256).unwrap().try_acquire().unwrap();
/// #     buf.set_len(5);
/// #     buf.write(0, b"hello").unwrap();
/// #     let (sent, _) = client.block_on(client.send(&grant, buf, 7)).unwrap();
/// #     sent.unwrap();
/// # });
/// let message = client.block_on(receiver.recv())??; // elsewhere: receiver.recv().await?
/// assert_eq!((message.to_vec(), message.immediate), (b"hello".to_vec(), 7));
/// assert_eq!(message.initiator, [127, 0, 0, 45].into());
/// drop(message); // room for the next one
/// # sends.join().unwrap();
/// # Ok(())
/// # }
/// ```
///
/// When it is dropped, its queue goes with it, and its senders are told REMOTE_NOT_READY once what
/// is posted is used up. The host's `deregister` of its [`Receiver::region`] refuses them at once.
#[derive(Debug)]
pub struct Receiver {
    handle: Arc<Handle<State>>,
    inbox: Arc<Inbox>,
    layout: ReceiveQueueLayout,
    region: RegisteredRegion,
}

impl Receiver {
    pub(super) fn new(handle: Arc<Handle<State>>, queue: ReceiveQueue) -> Self {
        let (layout, region) = (queue.layout(), queue.region().clone());
        let inbox = Arc::new(Inbox::new(queue));
        handle.shared().with_own(|state, _| state.watch(inbox.clone()));
        Self { handle, inbox, layout, region }
    }

    /// The next message, when it comes. It waits for as long as nobody sends.
    ///
    /// A future that is dropped loses none: what has come stays in the queue for the next one.
    ///
    /// # Errors
    /// If none can come, as the engine is gone. What came before is received first.
    pub const fn recv(&mut self) -> Recv<'_> {
        Recv { receiver: self }
    }

    /// The next message, if it has come. In a child of this process none does.
    #[must_use]
    pub fn try_recv(&mut self) -> Option<Message> {
        self.inbox.take().map(|event| self.message(event))
    }

    /// The queue's name and memory: what grants for SEND and NOTIFY are made for.
    #[must_use]
    pub const fn region(&self) -> &RegisteredRegion {
        &self.region
    }

    /// Returns the size of the queue.
    #[must_use]
    pub const fn layout(&self) -> ReceiveQueueLayout {
        self.layout
    }

    /// How many receives are posted: how many more messages may come before one that the
    /// application has is dropped.
    #[must_use]
    pub fn posted(&self) -> usize {
        self.inbox.posted()
    }

    fn message(&self, event: Event) -> Message {
        Message { event, inbox: self.inbox.clone() }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.handle.shared().with_own(|state, _| state.forget(&self.inbox));
    }
}

/// Waits for a message: [`Receiver::recv`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Recv<'a> {
    receiver: &'a mut Receiver,
}

impl Future for Recv<'_> {
    type Output = Result<Message, WaitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let receiver = &*self.receiver;
        let shared = receiver.handle.shared();
        let polled =
            shared.with(|state, after| state.poll_event(&receiver.inbox, context, after))?;
        polled.map_ok(|event| receiver.message(event))
    }
}

impl Drop for Recv<'_> {
    fn drop(&mut self) {
        let receiver = &*self.receiver;
        // In a child a thread of the parent's may have the lock for ever, and nobody waits.
        if receiver.handle.shared().check_process().is_ok() {
            // Without a lock: with its last waker, a task may go.
            drop(receiver.inbox.stop_waiting());
        }
    }
}

/// A message that has come, or an event without one: an [`Event`], and of a SEND its bytes. Its
/// receive is posted again when it is dropped, so an application that keeps messages takes no more
/// of them than the queue has receives.
pub struct Message {
    event: Event,
    inbox: Arc<Inbox>,
}

impl Message {
    /// Returns the event: what has come, from whom, and where. Also what this dereferences to.
    #[must_use]
    pub const fn event(&self) -> &Event {
        &self.event
    }

    /// Copies the bytes of a SEND into the beginning of `bytes`.
    ///
    /// # Errors
    /// If it is not a SEND's, or `bytes` is shorter than the message, or it came to the parent of
    /// this process; then `bytes` is unchanged.
    pub fn read(&self, bytes: &mut [u8]) -> Result<(), ReceiveQueueError> {
        self.inbox.read(&self.event, bytes)
    }

    /// A copy of the bytes of a SEND; nothing of others, which have none here: those of a
    /// WRITE_WITH_IMM are in their region.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.event.len as usize];
        match self.read(&mut bytes) {
            Ok(()) => bytes,
            Err(_) => Vec::new(),
        }
    }
}

impl Deref for Message {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Message").field(&self.event).finish()
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.inbox.post(self.event.receive);
    }
}
