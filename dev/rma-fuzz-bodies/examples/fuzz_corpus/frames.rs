//! Inputs of the target `wire`: honest frames from simulated runs, and what lies just outside.

use std::collections::BTreeMap;

use rma_core::wire::FrameView;
use rma_sim::{load::swarm::run_seed, net::trace::What};

/// One frame of each kind and, for responses, of some lengths; and what lies just outside.
pub(crate) fn all() -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for seed in 0..40 {
        let run = run_seed(seed, |seen| {
            if let What::Sent { frame, .. } = &seen.what
                && let Some(name) = name(&frame.bytes)
            {
                files.entry(name).or_insert_with(|| frame.bytes.to_vec());
            }
        });
        run.expect("the swarm has run these seeds");
    }
    // The golden vectors have the frames that the swarm does not send.
    for frame in golden() {
        if let Some(name) = name(&frame) {
            files.entry(name).or_insert(frame);
        }
    }
    let request = files["request-throughput"].clone();
    let changed = |at: usize, octets: &[u8]| {
        let mut frame = request.clone();
        frame[at..at + octets.len()].copy_from_slice(octets);
        frame
    };
    files.insert("version-1".into(), changed(0, &[1]));
    files.insert("type-9".into(), changed(1, &[9]));
    files.insert("type-13".into(), changed(1, &[13]));
    let recorded = files["recorded-fetchadd"].clone();
    for (name, at, octet) in [("flags-2", 39, 2), ("type-rekey", 38, 3), ("misaligned", 35, 4)] {
        let mut frame = recorded.clone();
        frame[at] = octet;
        files.insert(format!("recorded-{name}"), frame);
    }
    files.insert("class-2".into(), changed(2, &[2]));
    files.insert("request-op-size-0".into(), changed(36, &[0, 0]));
    files.insert("request-op-size-4097".into(), changed(36, &[0x10, 0x01]));
    files.insert("request-payload-len-63".into(), changed(38, &[0, 63]));
    files.insert("request-truncated".into(), request[..55].to_vec());
    files.insert("header-only".into(), request[..28].to_vec());
    files.insert("empty".into(), Vec::new());
    files
}

/// The golden frames of recorded ops and of SETTLE.
fn golden() -> Vec<Vec<u8>> {
    let vectors = include_str!("../../../../docs/vectors/1rma-v2.json");
    let octets = |hex: &str| -> Vec<u8> {
        let pairs = (0..hex.len()).step_by(2);
        pairs.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal")).collect()
    };
    let frames = vectors.lines().filter_map(|line| {
        let hex = line.trim().strip_prefix("\"frame\": \"")?;
        let hex = hex.trim_end_matches(',').trim_end_matches('"');
        hex.starts_with("02").then(|| octets(hex))
    });
    frames.filter(|frame| (9..=12).contains(&frame[1])).collect()
}

fn name(frame: &[u8]) -> Option<String> {
    Some(
        match FrameView::parse(frame).ok()? {
            FrameView::ReadRequest(view) => format!("request-{:?}", view.claims().header.class),
            FrameView::Failure(view) => format!("failure-{:?}", view.claims().status),
            FrameView::ReadResponse(view) => match view.claims().payload_len {
                len @ (1 | 63 | 64 | 65 | 512) => format!("response-{len}"),
                _ => return None,
            },
            FrameView::MutationRequest(view) => format!("{:?}", view.claims().mutation.op_type()),
            FrameView::Solicitation(_) => "solicitation".into(),
            FrameView::SolicitedData(view) => match view.claims().payload_len {
                len @ (1 | 16 | 63 | 64 | 65) => format!("data-{len}"),
                _ => return None,
            },
            FrameView::Acknowledgement(view) => {
                format!("acknowledgement-{:?}", view.claims().status)
            }
            FrameView::RecordedRequest(view) => {
                format!("recorded-{:?}", view.claims().mutation.op_type())
            }
            FrameView::AcknowledgementWithResult(_) => "result".into(),
            FrameView::SettleRequest(view) => format!("settle-{:?}", view.claims().op_type),
            FrameView::Settlement(view) => format!("settlement-{:?}", view.claims().verdict),
        }
        .to_lowercase(),
    )
}
