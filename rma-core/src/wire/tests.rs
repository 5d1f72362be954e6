//! Round trips, and bytes that are no frame.

use super::*;
use crate::{
    addr::Pid,
    command::CommandSlotId,
    crypto::EngineId,
    op::{ClassOfService, OpStatus},
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
    request().emit(&mut frame);
    frame
}

fn response_frame(response: Response) -> Vec<u8> {
    let mut frame = vec![0xaa; read::RESPONSE_OVERHEAD + usize::from(response.payload_len)];
    response.emit(frame.first_chunk_mut().unwrap());
    frame
}

fn failure_frame(status: OpStatus) -> [u8; failure::FAILURE_LEN] {
    let mut frame = [0xaa; failure::FAILURE_LEN];
    Failure { header: header(), status }.emit(&mut frame);
    frame
}

fn reason(frame: &[u8]) -> DropReason {
    FrameView::parse(frame).expect_err("this frame is wrong")
}

#[test]
fn the_common_header_has_the_octets_of_the_wire_document() {
    let expected: [u8; header::HEADER_LEN] = [
        1, 1, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 16, 11, 12, 13, 14, 17, 18, 19, 20, 21, 22,
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
    assert_eq!(reason(&with(0, &[2])), DropReason::Version);
    assert_eq!(reason(&with(1, &[0])), DropReason::FrameType);
    assert_eq!(reason(&with(1, &[4])), DropReason::FrameType);
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

#[test]
fn split_gives_the_three_parts_and_refuses_short_frames() {
    let mut frame = *b"hheader-payload-0123456789abcdef";
    let parts = split(&mut frame, 8).unwrap();
    assert_eq!(parts.header, b"hheader-");
    assert_eq!(parts.payload, b"payload-");
    assert_eq!(parts.tag, b"0123456789abcdef");
    assert!(split(&mut [0; 23], 8).is_none());
}
