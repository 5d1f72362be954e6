//! Round trips, and bytes that are no frame.

use proptest::prelude::*;

use super::{mutation::*, recorded::*, settle::*, *};
use crate::{
    addr::Pid,
    command::CommandSlotId,
    crypto::EngineId,
    error::DropReason,
    op::{ClassOfService, OpStatus},
    outcome::{OpName, Verdict},
    region::RegionId,
};

fn header() -> Header {
    Header {
        class: ClassOfService::Throughput,
        pid: Pid(0x0102_0304),
        region: RegionId::from_bits(0x0506_0708),
        slot: CommandSlotId(0x090a),
        generation: 0x0b0c_0d0e,
        engine: EngineId(0x0f10),
        counter: 0x1112_1314_1516_1718,
    }
}

fn request() -> Request {
    Request { header: header(), region_offset: 1 << 40, op_size: 4096, payload_len_max: 1424 }
}

fn request_frame() -> [u8; read::REQUEST_LEN] {
    let mut frame = [0xaa; read::REQUEST_LEN];
    request().emit(frame.first_chunk_mut().expect("it is longer"));
    frame
}

fn response_frame(response: Response) -> Vec<u8> {
    let mut frame = vec![0xaa; read::RESPONSE_OVERHEAD + usize::from(response.payload_len)];
    response.emit(frame.first_chunk_mut().unwrap());
    frame
}

fn failure_frame(status: OpStatus) -> [u8; failure::FAILURE_LEN] {
    let mut frame = [0xaa; failure::FAILURE_LEN];
    Failure { header: header(), status }.emit(frame.first_chunk_mut().expect("it is longer"));
    frame
}

fn reason(frame: &[u8]) -> DropReason {
    FrameView::parse(frame).expect_err("this frame is wrong")
}

#[test]
fn the_common_header_has_the_octets_of_the_wire_document() {
    let expected: [u8; header::HEADER_LEN] = [
        2, 1, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 16, 11, 12, 13, 14, 17, 18, 19, 20, 21, 22,
        23, 24,
    ];
    assert_eq!(request_frame()[..header::HEADER_LEN], expected);
    assert_eq!(request_frame()[28..40], [0, 0, 1, 0, 0, 0, 0, 0, 16, 0, 5, 144]);
}

#[test]
fn a_request_round_trips() {
    match FrameView::parse(&request_frame()) {
        Ok(FrameView::ReadRequest(view)) => assert_eq!(view.claims(), request()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_response_round_trips() {
    let response = Response { header: header(), op_offset: 2048, payload_len: 2048 };
    match FrameView::parse(&response_frame(response)) {
        Ok(FrameView::ReadResponse(view)) => assert_eq!(view.claims(), response),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failure_notice_round_trips_with_every_status_it_may_carry() {
    for status in OpStatus::ALL {
        let frame = failure_frame(status);
        match FrameView::parse(&frame) {
            Ok(FrameView::Failure(view)) => {
                assert!(Failure::may_carry(status));
                assert_eq!(view.claims(), Failure { header: header(), status });
            }
            Err(DropReason::NoticeStatus) => assert!(!Failure::may_carry(status)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn frames_of_every_other_length_are_dropped() {
    let response = Response { header: header(), op_offset: 0, payload_len: 100 };
    for frame in [&request_frame()[..], &response_frame(response), &failure_frame(OpStatus::Nack)] {
        for len in 0..frame.len() {
            assert_eq!(reason(&frame[..len]), DropReason::Length, "{len}");
        }
        let longer = [frame, &[0]].concat();
        assert_eq!(reason(&longer), DropReason::Length);
    }
}

#[test]
fn undefined_values_are_dropped() {
    let with = |at: usize, octets: &[u8]| {
        let mut frame = request_frame();
        frame[at..at + octets.len()].copy_from_slice(octets);
        frame
    };
    assert_eq!(reason(&with(0, &[0])), DropReason::Version);
    for version in [1, 3] {
        assert_eq!(reason(&with(0, &[version])), DropReason::Version);
    }
    assert_eq!(reason(&with(1, &[0])), DropReason::FrameType);
    assert_eq!(reason(&with(1, &[13])), DropReason::FrameType);
    assert_eq!(reason(&with(2, &[2])), DropReason::Field);
    assert_eq!(reason(&with(3, &[1])), DropReason::Field);
    assert_eq!(reason(&with(36, &[0, 0])), DropReason::Field, "op size 0");
    assert_eq!(reason(&with(36, &[16, 1])), DropReason::Field, "op size 4097");
    assert_eq!(reason(&with(38, &[0, 63])), DropReason::Field, "less than a granule");

    let response = |op_offset, payload_len| {
        reason(&response_frame(Response { header: header(), op_offset, payload_len }))
    };
    assert_eq!(response(0, 0), DropReason::Field);
    assert_eq!(response(1, 64), DropReason::Field, "not on a granule");
    assert_eq!(response(4032, 65), DropReason::Field, "past the largest op");
    assert_eq!(response(65_472, 64), DropReason::Field, "no overflow");

    let mut notice = failure_frame(OpStatus::Nack);
    notice[31] = 1;
    assert_eq!(reason(&notice), DropReason::Field, "reserved");
}

fn mutation_requests() -> [MutationRequest; 2] {
    let write = Mutation::Write { region_offset: 1 << 40, op_size: 4096 };
    [write, Mutation::Rekey].map(|mutation| MutationRequest {
        header: header(),
        mutation,
        timeout_micros: 0x0010_0002,
    })
}

fn mutation_request_frame(request: MutationRequest) -> [u8; MUTATION_REQUEST_LEN] {
    let mut frame = [0xaa; MUTATION_REQUEST_LEN];
    request.emit(frame.first_chunk_mut().expect("it is longer"));
    frame
}

#[test]
fn the_hops_of_a_mutation_have_the_octets_of_the_wire_document() {
    let [write, rekey] = mutation_requests().map(mutation_request_frame);
    assert_eq!((write[1], rekey[1]), (4, 5));
    assert_eq!(write[28..44], [0, 0, 1, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 16, 0, 2]);
    assert_eq!(rekey[28..44], [0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 16, 0, 2]);
    let mut frame = [0xaa; SOLICITATION_LEN];
    Solicitation { header: header(), pending: 0x0102, payload_len_max: 1424 }
        .emit(frame.first_chunk_mut().expect("it is longer"));
    assert_eq!((frame[1], &frame[28..32]), (6, &[1, 2, 5, 144][..]));
    let mut frame = [0xaa; DATA_OVERHEAD + 64];
    SolicitedData { header: header(), pending: 0x0102, op_offset: 128, payload_len: 64 }
        .emit(frame.first_chunk_mut().unwrap());
    assert_eq!((frame[1], &frame[28..37]), (7, &[1, 2, 0, 64, 0, 128, 0, 0, 0xaa][..]));
    let mut frame = [0xaa; ACKNOWLEDGEMENT_LEN];
    let status = OpStatus::RemoteAuthenticationFailure;
    Acknowledgement { header: header(), status }
        .emit(frame.first_chunk_mut().expect("it is longer"));
    assert_eq!((frame[1], frame[3], &frame[28..32]), (8, 1, &[0; 4][..]));
}

#[test]
fn undefined_values_of_a_mutation_are_dropped() {
    let [write, rekey] = mutation_requests().map(mutation_request_frame);
    let with = |frame: &[u8], at: usize, octets: &[u8]| {
        let mut frame = frame.to_vec();
        frame[at..at + octets.len()].copy_from_slice(octets);
        reason(&frame)
    };
    for frame in [write, rekey] {
        assert_eq!(with(&frame, 3, &[1]), DropReason::Field, "status");
        assert_eq!(with(&frame, 36, &[0, 0]), DropReason::Field, "op size 0");
        assert_eq!(with(&frame, 36, &[16, 1]), DropReason::Field, "op size 4097");
        assert_eq!(with(&frame, 39, &[1]), DropReason::Field, "reserved");
        assert_eq!(with(&frame, 40, &[0; 4]), DropReason::Field, "no time");
    }
    assert_eq!(with(&rekey, 36, &[0, 17]), DropReason::Field, "a key has 16 octets");
    assert_eq!(with(&rekey, 35, &[1]), DropReason::Field, "a key has no offset");

    let mut frame = [0; SOLICITATION_LEN];
    Solicitation { header: header(), pending: 1, payload_len_max: 64 }
        .emit(frame.first_chunk_mut().expect("it is longer"));
    assert_eq!(with(&frame, 31, &[63]), DropReason::Field, "less than a granule");

    let data = |op_offset, payload_len: usize| {
        let mut frame = vec![0; DATA_OVERHEAD + payload_len];
        let payload_len = payload_len as u16;
        SolicitedData { header: header(), pending: 1, op_offset, payload_len }
            .emit(frame.first_chunk_mut().unwrap());
        reason(&frame)
    };
    assert_eq!(data(0, 0), DropReason::Field, "no payload");
    assert_eq!(data(0, 4097), DropReason::Field, "more than an op");
    assert_eq!(data(1, 64), DropReason::Field, "not on a granule");
    assert_eq!(data(4032, 65), DropReason::Field, "past the largest op");

    let mut frame = [0; ACKNOWLEDGEMENT_LEN];
    Acknowledgement { header: header(), status: OpStatus::Ok }
        .emit(frame.first_chunk_mut().expect("it is longer"));
    assert_eq!(with(&frame, 31, &[1]), DropReason::Field, "reserved");
    for status in OpStatus::ALL.into_iter().filter(|&it| !Acknowledgement::may_carry(it)) {
        assert_eq!(with(&frame, 3, &[status as u8]), DropReason::NoticeStatus, "{status}");
    }
}

#[test]
fn undefined_values_of_a_recorded_request_are_dropped() {
    let ops = [
        Mutation::OrderedWrite { region_offset: 64, op_size: 8 },
        Mutation::Send { op_size: 4096 },
        Mutation::WriteWithImm { region_offset: 3, op_size: 5, ordered: false },
        Mutation::WriteWithImm { region_offset: 8, op_size: 4096, ordered: true },
        Mutation::Notify,
        Mutation::CompareSwap { region_offset: 8 },
        Mutation::FetchAdd { region_offset: u64::MAX - 7 },
    ];
    for mutation in ops {
        let request = RecordedRequest { header: header(), mutation, timeout_micros: 1, done: None };
        let mut frame = [0; RECORDED_REQUEST_LEN];
        request.emit(frame.first_chunk_mut().expect("it is longer"));
        match FrameView::parse(&frame) {
            Ok(FrameView::RecordedRequest(view)) => assert_eq!(view.claims(), request),
            other => panic!("{other:?}"),
        }
        let with = |at: usize, octets: &[u8]| {
            let mut frame = frame;
            frame[at..at + octets.len()].copy_from_slice(octets);
            FrameView::parse(&frame).err()
        };
        let wrong = Some(DropReason::Field);
        for op_type in [0, 1, 3, 9, 255] {
            assert_eq!(with(38, &[op_type]), wrong, "{mutation:?} of type {op_type}");
        }
        for flags in [2, 3, 128] {
            assert_eq!(with(39, &[flags]), wrong, "{mutation:?} with flags {flags}");
        }
        assert_eq!(with(3, &[1]), wrong, "status");
        assert_eq!(with(36, &[0, 0]), wrong, "op size 0");
        assert_eq!(with(36, &[16, 1]), wrong, "op size 4097");
        assert_eq!(with(40, &[0; 4]), wrong, "no time");
        assert_eq!(with(53, &[1]), wrong, "the number of no op");
        assert_eq!(with(51, &[1, 0, 1]), None, "op 1, with a number");
        assert_eq!(with(54, &[1]), wrong, "reserved");
        let unaligned = if mutation.is_ordered() || mutation.has_result() {
            [with(35, &[4]), with(36, &[0, 12])]
        } else {
            [wrong; 2]
        };
        assert_eq!(unaligned, [wrong; 2], "{mutation:?}");
        if matches!(mutation, Mutation::Send { .. } | Mutation::Notify) {
            assert_eq!(with(35, &[8]), wrong, "a queue has no places");
            assert_eq!(with(39, &[1]), wrong, "nor an order");
        }
    }
}

#[test]
fn undefined_values_of_results_and_settlements_are_dropped() {
    let with = |frame: &[u8], at: usize, octet: u8| {
        let mut frame = frame.to_vec();
        frame[at] = octet;
        FrameView::parse(&frame).err()
    };
    let wrong = Some(DropReason::Field);
    let mut frame = [0; RESULT_LEN];
    AcknowledgementWithResult { header: header() }
        .emit(frame.first_chunk_mut().expect("it is longer"));
    assert!(FrameView::parse(&frame).is_ok());
    for status in 1..=9 {
        assert_eq!(with(&frame, 3, status), wrong, "only what was applied has a result");
    }
    assert_eq!(with(&frame, 31, 1), wrong, "reserved");

    let name = OpName { engine: EngineId(1), counter: 2, number: 3 };
    let mut frame = [0; SETTLE_REQUEST_LEN];
    SettleRequest { header: header(), op_type: crate::op::OpType::Send, name }
        .emit(frame.first_chunk_mut().expect("it is longer"));
    assert!(FrameView::parse(&frame).is_ok());
    for op_type in [0, 1, 3, 9, 255] {
        assert_eq!(with(&frame, 38, op_type), wrong, "{op_type} is not recorded");
    }
    for at in [3, 39, 42, 43] {
        assert_eq!(with(&frame, at, 1), wrong, "{at}");
    }

    let mut frame = [0; SETTLEMENT_LEN];
    Settlement { header: header(), verdict: Verdict::Forgotten }
        .emit(frame.first_chunk_mut().expect("it is longer"));
    assert!(FrameView::parse(&frame).is_ok());
    for verdict in [0, 4, 255] {
        assert_eq!(with(&frame, 29, verdict), wrong, "verdict {verdict}");
    }
    for at in [3, 30, 31] {
        assert_eq!(with(&frame, at, 1), wrong, "{at}");
    }
}

/// Writes what a frame says over other octets; payload and tag stay as they are.
fn emitted(view: &FrameView, frame: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = frame.iter().map(|octet| !octet).collect();
    let header_len = match view {
        FrameView::ReadRequest(it) => {
            it.claims().emit(out.first_chunk_mut().unwrap());
            REQUEST_HEADER_LEN
        }
        FrameView::ReadResponse(it) => {
            it.claims().emit(out.first_chunk_mut().unwrap());
            RESPONSE_HEADER_LEN
        }
        FrameView::Failure(it) => {
            it.claims().emit(out.first_chunk_mut().unwrap());
            FAILURE_HEADER_LEN
        }
        FrameView::MutationRequest(it) => {
            it.claims().emit(out.first_chunk_mut().unwrap());
            MUTATION_REQUEST_HEADER_LEN
        }
        FrameView::Solicitation(it) => {
            it.claims().emit(out.first_chunk_mut().unwrap());
            SOLICITATION_HEADER_LEN
        }
        FrameView::SolicitedData(it) => {
            it.claims().emit(out.first_chunk_mut().unwrap());
            DATA_HEADER_LEN
        }
        FrameView::Acknowledgement(it) => {
            it.claims().emit(out.first_chunk_mut().unwrap());
            ACKNOWLEDGEMENT_HEADER_LEN
        }
        FrameView::RecordedRequest(it) => {
            it.claims().emit(out.first_chunk_mut().unwrap());
            RECORDED_REQUEST_HEADER_LEN
        }
        FrameView::AcknowledgementWithResult(it) => {
            it.claims().emit(out.first_chunk_mut().unwrap());
            RESULT_HEADER_LEN
        }
        FrameView::SettleRequest(it) => {
            it.claims().emit(out.first_chunk_mut().unwrap());
            SETTLE_REQUEST_HEADER_LEN
        }
        FrameView::Settlement(it) => {
            it.claims().emit(out.first_chunk_mut().unwrap());
            SETTLEMENT_HEADER_LEN
        }
    };
    out[header_len..].copy_from_slice(&frame[header_len..]);
    out
}

/// Octets that are nearly a frame: the right version and a length that a type has, all else at
/// random, but for fields that are rarely right by chance.
fn nearly_frames() -> impl Strategy<Value = Vec<u8>> {
    let lens = prop::sample::select(vec![48, 56, 60, 80, 112, 148]);
    let status = prop::sample::select(vec![0_u8, 0, 0, 1, 2, 5]);
    (lens, 1..=12_u8, 0..2_u8, status, any::<[u8; 148]>(), 0..65_u16).prop_map(
        |(len, frame_type, class, status, mut octets, granule)| {
            octets[..4].copy_from_slice(&[VERSION, frame_type, class, status]);
            match frame_type {
                2 => {
                    octets[28..30].copy_from_slice(&(granule * 64).to_be_bytes());
                    octets[30..32].copy_from_slice(&(len as u16 - 48).to_be_bytes());
                }
                3 | 8 => octets[28..32].fill(0),
                4 => octets[38..40].fill(0),
                5 => octets[28..40].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0]),
                7 => {
                    octets[30..32].copy_from_slice(&(len as u16).wrapping_sub(52).to_be_bytes());
                    octets[32..34].copy_from_slice(&(granule * 64).to_be_bytes());
                    octets[34..36].fill(0);
                }
                9 => recorded(&mut octets, granule),
                10 => octets[28..32].fill(0),
                11 => {
                    octets[38..40].copy_from_slice(&[granule as u8 % 9, 0]);
                    octets[42..44].fill(0);
                }
                12 => octets[28..32].copy_from_slice(&[0, granule as u8 % 4, 0, 0]),
                _ => {}
            }
            octets[..len].to_vec()
        },
    )
}

/// Makes the fields of a recorded request likely.
fn recorded(octets: &mut [u8; 148], granule: u16) {
    let op_type = granule as u8 % 9;
    let size: u16 = match op_type {
        6 | 8 => 8,
        7 => 16,
        _ => granule,
    };
    if matches!(op_type, 4 | 6) {
        octets[28..36].fill(0);
    }
    octets[35] &= !7;
    octets[36..38].copy_from_slice(&size.to_be_bytes());
    octets[38..40].copy_from_slice(&[op_type, u8::from(op_type == 2)]);
    octets[54..56].fill(0);
}

proptest! {
    /// A parsed header says all that is in the octets: writing it again gives every octet back.
    #[test]
    fn every_header_that_is_accepted_round_trips(frame in nearly_frames()) {
        if let Ok(view) = FrameView::parse(&frame) {
            prop_assert_eq!(emitted(&view, &frame), frame);
        }
    }

    #[test]
    fn octets_of_any_kind_are_a_frame_or_a_reason(frame in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = FrameView::parse(&frame);
    }
}

/// The generator above does reach every type, so that the property is about something.
#[test]
fn frames_of_every_type_come_out_of_the_generator() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut accepted = std::collections::BTreeSet::new();
    for _ in 0..2000 {
        let frame = nearly_frames().new_tree(&mut runner).unwrap().current();
        if FrameView::parse(&frame).is_ok() {
            accepted.insert(frame[1]);
        }
    }
    assert_eq!(accepted.into_iter().collect::<Vec<_>>(), (1..=12).collect::<Vec<_>>());
}
