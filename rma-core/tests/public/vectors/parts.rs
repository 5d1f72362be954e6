//! A frame, field by field, under the names that the fields have in the golden vectors.

use rma_core::{
    crypto::{Direction, Iv},
    outcome::Done,
    wire::{FrameView, Header, Mutation, failure, mutation, read, recorded, settle},
};
use serde_json::{Value, json};

/// A frame taken apart.
pub(crate) struct Parts {
    pub(crate) frame_type: &'static str,
    pub(crate) header: Header,
    pub(crate) header_len: usize,
    pub(crate) direction: Direction,
    /// The fields that are of this type only.
    pub(crate) fields: Value,
}

impl Parts {
    pub(crate) fn of(frame: &[u8]) -> Self {
        use Direction::{ToInitiator, ToResponder};
        let (frame_type, header, header_len, direction, fields) =
            match FrameView::parse(frame).expect("a NIC sends frames") {
                FrameView::ReadRequest(view) => {
                    let claims = view.claims();
                    let fields = json!({
                        "region_offset": format!("{:016x}", claims.region_offset),
                        "op_size": claims.op_size,
                        "payload_len_max": claims.payload_len_max,
                    });
                    let header_len = read::REQUEST_HEADER_LEN;
                    ("read request", claims.header, header_len, ToResponder, fields)
                }
                FrameView::ReadResponse(view) => {
                    let claims = view.claims();
                    let fields = json!({
                        "op_offset": claims.op_offset,
                        "payload_len": claims.payload_len,
                    });
                    let header_len = read::RESPONSE_HEADER_LEN;
                    ("read response", claims.header, header_len, ToInitiator, fields)
                }
                FrameView::Failure(view) => {
                    let header = view.claims().header;
                    let fields = json!({ "reserved": 0 });
                    ("failure", header, failure::FAILURE_HEADER_LEN, ToInitiator, fields)
                }
                FrameView::MutationRequest(view) => {
                    let claims = view.claims();
                    let (frame_type, region_offset) = match claims.mutation {
                        Mutation::Write { region_offset, .. } => ("write request", region_offset),
                        Mutation::Rekey => ("rekey request", 0),
                        other => panic!("{other:?} is asked for by another frame"),
                    };
                    let fields = json!({
                        "region_offset": format!("{region_offset:016x}"),
                        "op_size": claims.mutation.op_size(),
                        "reserved": 0,
                        "timeout_micros": claims.timeout_micros,
                    });
                    let header_len = mutation::MUTATION_REQUEST_HEADER_LEN;
                    (frame_type, claims.header, header_len, ToResponder, fields)
                }
                FrameView::Solicitation(view) => {
                    let claims = view.claims();
                    let fields = json!({
                        "pending_write": claims.pending,
                        "payload_len_max": claims.payload_len_max,
                    });
                    let header_len = mutation::SOLICITATION_HEADER_LEN;
                    ("solicitation", claims.header, header_len, ToInitiator, fields)
                }
                FrameView::SolicitedData(view) => {
                    let claims = view.claims();
                    let fields = json!({
                        "pending_write": claims.pending,
                        "payload_len": claims.payload_len,
                        "op_offset": claims.op_offset,
                        "reserved": 0,
                    });
                    let header_len = mutation::DATA_HEADER_LEN;
                    ("solicited data", claims.header, header_len, ToResponder, fields)
                }
                FrameView::Acknowledgement(view) => {
                    let header = view.claims().header;
                    let header_len = mutation::ACKNOWLEDGEMENT_HEADER_LEN;
                    let fields = json!({ "reserved": 0 });
                    ("acknowledgement", header, header_len, ToInitiator, fields)
                }
                FrameView::RecordedRequest(view) => {
                    let claims = view.claims();
                    let none = Done { counter: 0, number: 0 };
                    let (done, mutation) = (claims.done.unwrap_or(none), claims.mutation);
                    let fields = json!({
                        "region_offset": format!("{:016x}", region_offset(&mutation)),
                        "op_size": mutation.op_size(),
                        "op_type": mutation.op_type() as u8,
                        "flags": u8::from(mutation.is_ordered()),
                        "timeout_micros": claims.timeout_micros,
                        "done_counter": format!("{:016x}", done.counter),
                        "done_number": done.number,
                        "reserved": 0,
                    });
                    let header_len = recorded::RECORDED_REQUEST_HEADER_LEN;
                    ("recorded request", claims.header, header_len, ToResponder, fields)
                }
                FrameView::AcknowledgementWithResult(view) => {
                    let header = view.claims().header;
                    let fields = json!({ "reserved": 0 });
                    let name = "acknowledgement with result";
                    (name, header, recorded::RESULT_HEADER_LEN, ToInitiator, fields)
                }
                FrameView::SettleRequest(view) => {
                    let claims = view.claims();
                    let fields = json!({
                        "of_counter": format!("{:016x}", claims.name.counter),
                        "of_engine": claims.name.engine.0,
                        "op_type": claims.op_type as u8,
                        "zero": 0,
                        "of_number": claims.name.number,
                        "reserved": 0,
                    });
                    let header_len = settle::SETTLE_REQUEST_HEADER_LEN;
                    ("settle request", claims.header, header_len, ToResponder, fields)
                }
                FrameView::Settlement(view) => {
                    let claims = view.claims();
                    let fields = json!({ "verdict": claims.verdict as u16, "reserved": 0 });
                    let header_len = settle::SETTLEMENT_HEADER_LEN;
                    ("settlement", claims.header, header_len, ToInitiator, fields)
                }
            };
        Self { frame_type, header, header_len, direction, fields }
    }

    pub(crate) fn iv(&self) -> Iv {
        self.header.iv(self.direction)
    }
}

/// Returns the op's offset in the region, as its request says.
fn region_offset(mutation: &Mutation) -> u64 {
    match *mutation {
        Mutation::OrderedWrite { region_offset, .. }
        | Mutation::WriteWithImm { region_offset, .. }
        | Mutation::CompareSwap { region_offset }
        | Mutation::FetchAdd { region_offset } => region_offset,
        _ => 0,
    }
}
