//! Cuts a job's pairs into chunks that the activations' memory holds.

/// Length of the next chunk of pairs, given their slots, which are grouped: at most `most`, and at
/// least one. An expert's pairs stay together, because ggml's CPU backend chooses kernels by their
/// number; those of an expert with more than `most` are cut into equal parts.
pub fn next(slots: &[i32], most: usize) -> usize {
    let mut end = 0;
    while let Some(slot) = slots.get(end) {
        let run = slots[end..].iter().take_while(|other| *other == slot).count();
        if end + run > most {
            return if end > 0 { end } else { run.div_ceil(run.div_ceil(most.max(1))) };
        }
        end += run;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(runs: &[usize], most: usize) -> Vec<usize> {
        let slots: Vec<i32> = (0..).zip(runs).flat_map(|(slot, &run)| vec![slot; run]).collect();
        let (mut rest, mut all) = (&slots[..], Vec::new());
        while !rest.is_empty() {
            let len = next(rest, most);
            all.push(len);
            rest = &rest[len..];
        }
        all
    }

    #[test]
    fn experts_stay_whole_where_they_fit() {
        assert_eq!(chunks(&[3, 4, 5], 16), [12]);
        assert_eq!(chunks(&[3, 4, 5], 8), [7, 5]);
        assert_eq!(chunks(&[8, 8, 1], 8), [8, 8, 1]);
        assert!(chunks(&[], 8).is_empty());
    }

    #[test]
    fn larger_ones_are_cut_into_equal_parts() {
        assert_eq!(chunks(&[2, 17, 3], 16), [2, 9, 11]);
        assert_eq!(chunks(&[40], 16), [14, 13, 13]);
        for run in 17..400 {
            let parts = chunks(&[run], 16);
            assert!(parts.iter().all(|&part| (8..=16).contains(&part)), "{run}: {parts:?}");
            assert_eq!(parts.iter().sum::<usize>(), run);
        }
    }
}
