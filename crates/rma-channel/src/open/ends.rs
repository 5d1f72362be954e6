//! The kinds' ends, and which of them has which ability.

use rma_core::{
    gate::{Gate, Peer},
    receive_queue::ReceiveQueue,
    time::Instant,
};

use super::end::End;
use crate::{
    numbered::{Carries, EventReceiver, NumberedSender, Tells},
    read_ring,
    read_slot::{self, indirect_read},
    receiver::{Blocking as _, Receiver, RecoverError},
    ring_buffer::{
        self,
        sender::{RingSender, Writes},
    },
    send_recv::{bufferless, shared},
    sender::Sender,
    shared_ring::{
        Form,
        receiver::{Finds, SharedReceiver},
        sender::SharedSender,
    },
    terms::{Admitted, Half, OpenError},
    write_slot::{
        polled::{Lies, Polled},
        reserve_slot,
    },
};

/// A sender of some kind.
pub trait SenderEnd: Sender + End + Send {}
impl<S: Sender + End + Send> SenderEnd for S {}

/// A receiver of some kind.
pub trait ReceiverEnd: Receiver + End + Send {}
impl<R: Receiver + End + Send> ReceiverEnd for R {}

// Ends of one peer each, or that were admitted themselves.
impl<C: Carries> End for NumberedSender<C> {}
impl<F: Form> End for SharedSender<F> {}
impl<W: Writes> End for RingSender<W> {}
impl<L: Lies> End for Polled<L> {}
impl End for bufferless::Sender {}
impl End for shared::Sender {}
impl End for reserve_slot::Sender {}
impl End for ring_buffer::detached_bell::Receiver {}
impl End for ring_buffer::with_zeroing::Receiver {}
impl End for ring_buffer::without_zeroing::Receiver {}
impl End for read_ring::detached_bell::Receiver {}
impl End for read_ring::inlined_bell::Receiver {}
impl End for read_slot::detached_bell::Receiver {}
impl End for read_slot::inlined_bell::Receiver {}

/// The additional abilities of an end, by the methods of its own type.
macro_rules! does {
    (admits) => {
        fn admit(&mut self, host: &dyn Gate, peer: Peer) -> Result<Half<Admitted>, OpenError> {
            Ok(Half::joining(host.identity(), Self::admit(self, host, peer)?))
        }
    };
    (wakes) => {
        fn events(&self) -> Option<&ReceiveQueue> {
            Some(self.queue())
        }
    };
    (recovers) => {
        fn poll_recovery(&mut self, host: &dyn Gate, now: Instant) -> Result<bool, RecoverError> {
            Ok(Self::poll_recovery(self, host, now)?.is_some())
        }

        fn recovery_timeout(&self) -> Option<Instant> {
            Self::recovery_timeout(self)
        }
    };
}

macro_rules! ends {
    ($($end:ty: $($does:ident),+;)+) => {
        $(impl End for $end {
            $(does!($does);)+
        })+
    };
}

ends! {
    bufferless::Receiver: admits, wakes;
    shared::Receiver: admits, wakes;
    reserve_slot::Receiver: admits, wakes, recovers;
    ring_buffer::immediate::Receiver: wakes;
    read_ring::notify_receiver::Receiver: wakes;
    read_slot::notify_receiver::Receiver: wakes;
    read_ring::detached_bell::Sender: admits;
    read_ring::inlined_bell::Sender: admits;
    read_slot::detached_bell::Sender: admits;
    read_slot::inlined_bell::Sender: admits;
}

impl<T: Tells> End for EventReceiver<T> {
    does!(wakes);
}

impl End for indirect_read::Sender {
    does!(wakes);
}

impl<F: Finds> End for SharedReceiver<F> {
    does!(admits);
    does!(recovers);

    fn events(&self) -> Option<&ReceiveQueue> {
        self.finds.queue()
    }

    fn unfilled(&self) -> u64 {
        Self::unfilled(self)
    }
}
