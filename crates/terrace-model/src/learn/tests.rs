use super::*;
use proptest::prelude::*;

/// By hand from the documented fields, as the original writes them.
const ORIGINAL: &str = r#"{
 "enabled":true, "mode":"full", "schema":"llama.cpp.moe_layer_opt_perf.v1",
 "n_expert":32, "n_expert_used":4, "updates":12, "overflow_resets":0,
 "summary":{"layer_calls":24,"hot_slot_ratio":0.25,"hot0_slots_total":3,"parallel_fallbacks":0},
 "layers":[
  {"layer":1,"calls":12,"hot_slots_total":3,"cold_slots_total":9,"cold_slots_per_call":0.75,
   "parallel_join_wait_time_per_call_us":41.5,"parallel_hot_lane_wall_time_per_call_us":null,
   "parallel_fallback_reasons":{"threshold":1},
   "parallel_split_debug":{"samples":1,"last":{"hot":[1,2],"cold":[2,3],"join":3}},
   "experts":[[3,7],[5,5]],"hot_experts":[[3,3]],"cold_experts":[[3,4],[5,5]]},
  {"layer":0,"calls":12,"experts":[[31,12.0],[7,0]]}
 ]}"#;

fn parsed(text: &str) -> Result<LearnFile, String> {
    LearnFile::parse(text.as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn fields_of_the_original_are_read() {
    let file = parsed(ORIGINAL).unwrap();
    assert_eq!((file.experts, file.used, file.mode), (Some(32), Some(4), Reported::Full));
    let [first, second] = &file.layers[..] else { panic!("{file:?}") };
    assert_eq!((first.layer, first.split, first.pairs()), (0, false, 12));
    assert_eq!(first.counts(32)[31], 12);
    assert_eq!((second.layer, second.split, second.totals()), (1, true, [3, 9]));
    assert_eq!(second.experts[0], ExpertUses { expert: 3, hot: 3, cold: 4 });
    assert_eq!(second.time("parallel_join_wait_time"), 41.5);
    assert_eq!(second.times.len(), 1, "a time that is null is not known");
    assert_eq!(second.cold_per_call, Some(0.75));
    assert_eq!(second.launches.reasons["threshold"], 1);
    // The older schema has the same fields.
    assert_eq!(parsed(&ORIGINAL.replace(SCHEMA, OLD_SCHEMA)), Ok(file));
}

/// Keys that the original's writer of mode `full` has without a condition.
#[test]
fn readers_of_the_original_find_all_keys() {
    let text = parsed(ORIGINAL).unwrap().to_text();
    let file: serde_json::Value = serde_json::from_str(&text).unwrap();
    let of_all = "hot_slot_ratio hot0_slots_total hot0_slots_per_call hot1_slots_total hot1_slots_per_call \
        hot2_slots_total hot2_slots_per_call parallel_hot_lane_wall_time_per_call_us \
        parallel_cold_lane_wall_time_per_call_us parallel_join_wait_time_per_call_us \
        total_moe_time_per_call_us expert_matmul_time_per_call_us routing_time_per_call_us \
        worklist_time_per_call_us merge_time_per_call_us join_time_per_call_us \
        hot_join_time_per_call_us cold_join_time_per_call_us hot_branch_time_per_call_us \
        cold_branch_time_per_call_us hot2_gather_scatter_time_per_call_us \
        hot0_expert_matmul_time_per_call_us hot1_branch_time_per_call_us \
        hot_expert_matmul_time_per_call_us cold_gather_scatter_time_per_call_us gate_up_time_per_call_us \
        gate_time_per_call_us up_time_per_call_us down_time_per_call_us activation_time_per_call_us \
        pp_dense_layer_calls pp_dense_total_time_per_call_us pp_dense_cold_activation_time_per_call_us \
        parallel_region_wall_time_per_call_us parallel_overlap_estimate_per_call_us \
        parallel_hot_launches parallel_cold_launches parallel_fallbacks";
    let of_layers = "layer calls hot_slots_total cold_slots_total hot_slots_per_call cold_slots_per_call \
        parallel_hot_skips_zero parallel_cold_skips_zero experts hot_experts cold_experts";
    for (part, keys) in [(&file["summary"], "layer_calls"), (&file["layers"][0], of_layers)] {
        for key in of_all.split_whitespace().chain(keys.split_whitespace()) {
            assert!(!part[key].is_null(), "{key}: {part:#}");
        }
    }
    // Each that is a zero for want of a measurement is listed, once, and no other.
    let listed: Vec<&str> =
        file["not_measured"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    for name in &listed {
        assert_eq!(listed.iter().filter(|other| *other == name).count(), 1, "{name}");
        assert!(
            file["layers"].as_array().unwrap().iter().all(|layer| layer[*name] == 0.0 || layer[*name] == 0)
        );
    }
    assert!(listed.contains(&"routing_time_per_call_us") && listed.contains(&"pp_dense_layer_calls"));
    assert!(!listed.contains(&"parallel_join_wait_time_per_call_us"));
    // Counts alone have none of these.
    let counts = LearnFile { mode: Reported::Update, ..parsed(ORIGINAL).unwrap() }.to_text();
    assert!(!counts.contains("_us\"") && !counts.contains("not_measured"), "{counts}");
}

#[test]
fn what_is_off_holds_nothing() {
    let file =
        parsed(r#"{"enabled":false,"mode":"off","schema":"llama.cpp.moe_layer_opt_perf.v1","layers":[]}"#);
    let file = file.unwrap();
    assert_eq!((file.mode, file.layers.len()), (Reported::Off, 0));
    assert_eq!(parsed(&file.to_text()), Ok(file));
}

#[test]
fn what_is_wrong_is_one_line_with_its_place() {
    let schema = format!("\"schema\":\"{SCHEMA}\"");
    let with = |layers: &str| format!("{{{schema},\n\"layers\":{layers}}}");
    let cases = [
        (String::new(), "EOF while parsing a value at line 1 column 0"),
        ("[1]".into(), "expected an object with `schema` and `layers` at line 1"),
        ("{\"layers\":[]}".into(), "missing field `schema`"),
        (format!("{{{schema}}}"), "missing field `layers`"),
        ("{\"schema\":\"terrace\\n\",\"layers\":[]}".into(), "schema `terrace\\n` is neither"),
        (with("{}"), "expected a list of layers at line 2 column 9"),
        (with("[{\"calls\":1}]"), "missing field `layer` at line 2"),
        (with("[{\"layer\":-1}]"), "expected a count at line 2 column 2"),
        (with("[{\"layer\":65536}]"), "65536 is more than 65535 at line 2"),
        (with("[{\"layer\":0,\"experts\":[[1]]}]"), "expected a tuple of size 2 at line 2"),
        (with("[{\"layer\":0,\"experts\":[[1,2,3]]}]"), "at line 2"),
        (with("[{\"layer\":0,\"experts\":[[1,2.5]]}]"), "expected a count at line 2"),
        (with("[{\"layer\":0,\"experts\":[[1,2],[1,3]]}]"), "expert 1 is listed twice at line 2"),
        (with("[{\"layer\":0},{\"layer\":0}]"), "layer 0 is listed twice at line 2"),
        (
            with("[{\"layer\":0,\"experts\":[[8,1]]}],\"n_expert\":8"),
            "layer 0 uses expert 8, but `n_expert` is 8",
        ),
        (with("[]") + "x", "trailing characters at line 2"),
        (with(&("[".repeat(500) + &"]".repeat(500))), "at line 2"),
        (ORIGINAL[..ORIGINAL.len() / 2].into(), "EOF while parsing"),
        (ORIGINAL.replace("\"full\"", "\"most\""), "mode `most`: expected full, update or off at line 2"),
    ];
    for (text, expected) in cases {
        let error = parsed(&text).unwrap_err();
        assert!(error.contains(expected) && error.starts_with("not a learn file: "), "{text}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let long = vec![b' '; MOST_BYTES + 1];
    let error = LearnFile::parse(&long).unwrap_err();
    assert_eq!(error.to_string(), "16777217 bytes are too many (at most 16777216)");
}

#[test]
fn files_of_other_models_do_not_fit() {
    let shapes = [0, 1].map(|layer| LayerShape { layer, experts: 32, used: 4 });
    let file = parsed(ORIGINAL).unwrap();
    assert_eq!(file.check("any", &shapes), Ok(()));
    let named = LearnFile { model: Some("one".into()), ..file.clone() };
    assert_eq!(named.check("one", &shapes), Ok(()));
    let misfit = |file: &LearnFile, model: &str, shapes: &[LayerShape]| {
        file.check(model, shapes).unwrap_err().to_string()
    };
    assert_eq!(misfit(&named, "two", &shapes), "made for `one`, but the model is `two`");
    let wider = shapes.map(|shape| LayerShape { experts: 64, ..shape });
    assert_eq!(misfit(&file, "any", &wider), "32 experts per layer, but the model has 64");
    let more = shapes.map(|shape| LayerShape { used: 8, ..shape });
    assert_eq!(misfit(&file, "any", &more), "4 experts per token, but the model has 8");
    assert_eq!(misfit(&file, "any", &shapes[..1]), "layer 1 is none of the model's layers with experts");
    let unsaid = LearnFile { experts: None, used: None, ..file };
    let fewer = shapes.map(|shape| LayerShape { experts: 8, ..shape });
    assert_eq!(misfit(&unsaid, "any", &fewer), "layer 0 uses expert 31, but the model has 8 experts there");
}

#[test]
fn counts_beyond_all_bounds_saturate() {
    let most = format!("[[1,{}],[2,{}]]", u64::MAX, u64::MAX);
    let text = format!(
        "{{\"schema\":\"{SCHEMA}\",\"layers\":[{{\"layer\":0,\"hot_experts\":{most},\"cold_experts\":{most}}}]}}"
    );
    let file = parsed(&text).unwrap();
    assert_eq!((file.pairs(), file.layers[0].experts[0].all()), (u64::MAX, u64::MAX));
    assert_eq!(parsed(&file.to_text()).unwrap().layers[0].experts, file.layers[0].experts);
}

fn layer() -> impl Strategy<Value = LearnLayer> {
    let experts = prop::collection::btree_map(0u32..64, (0u64..1000, 0u64..1000), 0..20);
    let times = prop::collection::btree_map("[a-z_]{1,20}", 0u32..1_000_000, 0..4);
    let reasons = prop::collection::btree_map("[a-z_]{1,20}", any::<u64>(), 0..4);
    let launches = (any::<[u64; 6]>(), any::<[u64; 3]>(), reasons).prop_map(|(counts, reads, reasons)| {
        let [hot, cold, hot_zero, cold_zero, fallbacks, transferred] = counts;
        let [in_ram, from_disk, bytes_from_disk] = reads;
        Launches {
            hot,
            cold,
            hot_zero,
            cold_zero,
            fallbacks,
            reasons,
            transferred,
            in_ram,
            from_disk,
            bytes_from_disk,
        }
    });
    let any = (0u32..100, 0u64..1000, 0usize..LANES, experts, times, launches);
    any.prop_map(|(layer, calls, lane, experts, times, launches)| {
        let of = |(expert, (hot, cold))| ExpertUses { expert, hot, cold };
        let used = experts.into_iter().map(of).filter(|uses| uses.all() > 0);
        let experts: Vec<ExpertUses> = used.collect();
        let named = |(name, time)| (format!("{name}{}", original::TIME), f64::from(time) / 8.0);
        let times = times.into_iter().map(named).collect();
        let split = experts.iter().any(|uses| uses.hot > 0);
        let lane = if split { lane } else { 0 };
        LearnLayer { layer, calls, experts, split, lane, cold_per_call: Some(0.5), times, launches }
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        layers in prop::collection::vec(layer(), 0..6), model in prop::option::of("\\PC{0,20}"),
    ) {
        let mut layers: Vec<LearnLayer> = layers.into_iter().filter(|layer| !layer.experts.is_empty()).collect();
        layers.sort_by_key(|layer| layer.layer);
        layers.dedup_by_key(|layer| layer.layer);
        let file = LearnFile { mode: Reported::Full, model, experts: Some(64), used: Some(2), layers };
        prop_assert_eq!(parsed(&file.to_text()), Ok(file.clone()));
        let counts = LearnFile { mode: Reported::Update, ..file.clone() };
        let again = parsed(&counts.to_text()).unwrap();
        for (layer, before) in again.layers.iter().zip(&file.layers) {
            prop_assert!(layer.times.is_empty() && layer.launches == Launches::default());
            prop_assert_eq!(&layer.experts, &before.experts);
        }
    }

    #[test]
    fn nothing_makes_the_reader_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = LearnFile::parse(&text);
    }

    #[test]
    fn no_cut_of_a_file_makes_the_reader_panic(at in 0..ORIGINAL.len()) {
        prop_assert!(LearnFile::parse(&ORIGINAL.as_bytes()[..at]).is_err());
    }
}
