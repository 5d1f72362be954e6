//! Time as engines and ops count it: an [`Instant`] of a [`Clock`], which every turn of an
//! [`InlineHost`](crate::InlineHost) is told.

#[doc(inline)]
pub use rma_app::TscClock;
#[doc(inline)]
pub use rma_core::time::{Clock, Instant};
