//! Settings of a [`HostConfig`](crate::HostConfig): of its NIC, its engine, its counters and its
//! tenants' shares. Settings of the device stand in [`device`](crate::device).

#[doc(inline)]
pub use rma_app::IdlePolicy;
#[doc(inline)]
pub use rma_core::{
    executor::PayloadLenMax,
    nic::{NicConfigBuilder, ReceiveLenMax, TableMemory, Timing},
};

pub use crate::{
    driver::tenant::DriverConfig,
    host::{DEFAULT_PORT, text::HostTextError},
    iv_blocks::{CounterConfig, CounterError, CounterSource, STATE_DIR},
};
