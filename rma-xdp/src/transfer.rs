//! Calls of [`Transfers`](crate::Transfers), and the futures of a [`Client`](crate::Client):
//! settings, retries, congestion control ([`cc`]), outcomes and errors.

#[doc(inline)]
pub use rma_app::{Op, Poller, StartError, Transfer, TransferOptions};
#[doc(inline)]
pub use rma_core::{
    cc,
    executor::{
        CallError, CallId, ExecutorConfig, ExecutorConfigError, Missing, OpCall, Outcome,
        PIECES_MAX, RetryPolicy, SilentPeers,
    },
};
