//! Ops of a [`Portal`](crate::Portal): the parts of one, the names that it goes by, and what became
//! of it ([`Settlement`]).

#[doc(inline)]
pub use rma_app::{PortalLease, Settlement, wait::Awaited};
#[doc(inline)]
pub use rma_core::{
    command::CommandSlotId,
    limits::OP_SIZE_MAX,
    op::{ClassOfService, Moves, OpShape},
    outcome::{OpName, Verdict},
    portal::{Change, CommandPortal, Placement, ReadOp, RecordedOp, Source, WriteOp},
};
