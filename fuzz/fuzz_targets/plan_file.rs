//! Plans that were written as JSON and edited since: reading, and following them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use terrace_fuzz::{machine, model};
use terrace_plan::{PlanFile, Wishes, plan};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let written = match PlanFile::from_json(text) {
        Ok(written) => written,
        Err(error) => return assert!(!error.to_string().contains('\n')),
    };
    let wishes = Wishes { written: Some(written), ..Wishes::default() };
    let plan = match plan(&model(), &machine(), &wishes) {
        Ok(plan) => plan,
        Err(error) => return assert!(!error.to_string().contains('\n'), "{error}"),
    };
    assert!(plan.resident.bytes() + plan.slots.bytes() <= plan.budget.bytes(), "{plan}");
    let _ = (format!("{plan:#}"), plan.tables(80).to_string());
    let json = serde_json::to_string(&plan).expect("a plan is plain data");
    let again = PlanFile::from_json(&json).expect("a plan can be read");
    let again = Wishes { written: Some(again), ..Wishes::default() };
    terrace_plan::plan(&model(), &machine(), &again).expect("a plan can be followed again");
});
