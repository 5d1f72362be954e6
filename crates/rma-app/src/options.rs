//! The options of a transfer: [`TransferOptions`].

use core::time::Duration;

use rma_core::{executor::RetryPolicy, op::ClassOfService};

/// The options of a transfer: [`Transfers::read_with`], [`Transfers::write_with`],
/// [`Transfer::options`].
///
/// ```
/// # use core::time::Duration;
/// # use rma_xdp::{
/// #     ops::ClassOfService,
/// #     transfer::{RetryPolicy, TransferOptions},
/// # };
/// // There is another replica: turn to it soon.
/// let hasty = TransferOptions::new().retry(RetryPolicy::NONE).timeout(Duration::from_millis(50));
/// // A backup, that nobody waits for.
/// let bulk = TransferOptions::new().class(ClassOfService::Throughput);
/// # assert_ne!(hasty, bulk);
/// ```
///
/// [`Transfers::read_with`]: crate::Transfers::read_with
/// [`Transfers::write_with`]: crate::Transfers::write_with
/// [`Transfer::options`]: crate::Transfer::options
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct TransferOptions {
    pub(crate) class: Option<ClassOfService>,
    pub(crate) retry: RetryPolicy,
    pub(crate) timeout: Option<Duration>,
}

impl TransferOptions {
    /// The class that suits the size, [`RetryPolicy::DEFAULT`], and no timeout.
    pub const fn new() -> Self {
        Self { class: None, retry: RetryPolicy::DEFAULT, timeout: None }
    }

    /// With which class of service. Default: latency if one op can do it, or else throughput.
    pub const fn class(self, class: ClassOfService) -> Self {
        Self { class: Some(class), ..self }
    }

    /// Sets the policy for ops that fail. Default: [`RetryPolicy::DEFAULT`].
    pub const fn retry(self, retry: RetryPolicy) -> Self {
        Self { retry, ..self }
    }

    /// After how long to give up, from when the transfer begins: no op is issued from then on, and
    /// it ends when those that are under way have, which promise P1 bounds. Default: when the
    /// retries are used up, or no op was OK for
    /// [`ExecutorConfig::stall`](rma_core::executor::ExecutorConfig::stall).
    ///
    /// It is a bound and no promise to go on for so long: a host that answers nobody ends the
    /// transfer by [`RetryPolicy::outlast`], which is a fraction of a second by default. A client
    /// that has only this host to ask, and would see it restart, sets both.
    pub const fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// After how long it is given up, if [`TransferOptions::timeout`] says so.
    #[must_use]
    pub const fn time_limit(&self) -> Option<Duration> {
        self.timeout
    }
}
