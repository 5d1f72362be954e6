//! Messages and events of a [`ReceiveQueue`](crate::ReceiveQueue): its layout, the receives that an
//! application posts, and [`Receiver`], which awaits what others send.

#[doc(inline)]
pub use rma_app::{Message, Receiver, Recv};
#[doc(inline)]
pub use rma_core::{
    error::ReceiveQueueError,
    receive_queue::{Event, Receive, ReceiveQueueLayout},
};
