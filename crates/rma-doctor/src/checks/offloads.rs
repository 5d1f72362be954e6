//! Offloads of the device and the network stack.

use super::{Answer, Answered, Subject};
use crate::setting::Setting;

/// A feature by the kernel's name, and as `ethtool -K` takes it.
#[derive(Clone, Copy)]
struct Feature {
    kernel: &'static str,
    short: &'static str,
}

const LRO: [Feature; 2] = [
    Feature { kernel: "rx-lro", short: "lro" },
    Feature { kernel: "rx-gro-hw", short: "rx-gro-hw" },
];
const GRO_GENERIC: [Feature; 2] = [
    Feature { kernel: "rx-gro-list", short: "rx-gro-list" },
    Feature { kernel: "rx-udp-gro-forwarding", short: "rx-udp-gro-forwarding" },
];
const VLAN: [Feature; 1] = [Feature { kernel: "rx-vlan-hw-parse", short: "rxvlan" }];

/// Those of the features that are on, to be put off: by command if the driver can.
fn off(subject: &Subject<'_>, features: &[Feature], answer: fn(String) -> Answer) -> Answered {
    let seen = subject.interface.features.get()?;
    let on: Vec<&Feature> = features.iter().filter(|it| seen.on.contains(it.kernel)).collect();
    let names = |of: fn(&Feature) -> &'static str, between: &str| {
        on.iter().map(|it| of(it)).collect::<Vec<_>>().join(between)
    };
    if on.is_empty() {
        return Ok(Answer::ok("off"));
    }
    let answer = answer(format!("{} on", names(|it| it.kernel, " and "))).wanted("off");
    if on.iter().any(|it| !seen.changeable.contains(it.kernel)) {
        return Ok(answer
            .why("the driver lets nobody change it: take another device, or one of its older drivers")
            .command(format!("ethtool -k {}", subject.name())));
    }
    let changes = names(|it| it.short, " off ");
    let answer = answer.command(format!("ethtool -K {} {changes} off", subject.name()));
    Ok(on.iter().fold(answer, |answer, it| {
        let interface = subject.interface.name.clone();
        answer.setting(Setting::Feature { interface, name: it.kernel.into(), on: false })
    }))
}

pub(super) fn lro(subject: &Subject<'_>) -> Answered {
    off(subject, &LRO, Answer::mend)
}

pub(super) fn gro_generic(subject: &Subject<'_>) -> Answered {
    if !subject.is_generic()? {
        return Ok(Answer::does_not_apply("hosts run in native mode, before GRO"));
    }
    off(subject, &GRO_GENERIC, Answer::mend)
}

pub(super) fn vlan_offload(subject: &Subject<'_>) -> Answered {
    if !subject.interface.link.get()?.has_vlans {
        return Ok(Answer::does_not_apply("there are no VLANs on it"));
    }
    off(subject, &VLAN, Answer::note)
}

pub(super) fn pause_eee(subject: &Subject<'_>) -> Answered {
    let eee = *subject.interface.eee.get()?;
    if eee == Some(true) {
        return Ok(Answer::note("EEE on")
            .wanted("off")
            .command(format!("ethtool --set-eee {} eee off", subject.name()))
            .setting(Setting::Eee { interface: subject.interface.name.clone(), on: false }));
    }
    Ok(match subject.interface.pause.get()? {
        Some(pause) if pause.rx || pause.tx => Answer::note("pause on")
            .wanted("off, unless the network is to be without loss")
            .command(format!("ethtool -A {} rx off tx off", subject.name())),
        None if eee.is_none() => Answer::does_not_apply("the driver has neither"),
        _ => Answer::ok("both off"),
    })
}
