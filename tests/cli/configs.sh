#!/bin/sh
# configs.sh XDIT ROOT FULL - values of keys of configs that would change what is computed, and that
# are not built: each is refused by the file, the key and the value.
. "$(dirname "$0")/lib.sh"
FULL=$3

# A copy of a model whose config.json in the folder $2 can be changed.
copy() {
    mkdir -p "$T/$1/$2"
    for part in "$FULL/$1"/*; do
        [ "$part" = "$FULL/$1/$2" ] || ln -s "$part" "$T/$1"
    done
    for file in "$FULL/$1/$2"/*; do
        [ "$file" = "$FULL/$1/$2/config.json" ] || ln -s "$file" "$T/$1/$2"
    done
    model=$1 folder=$2
}
# change KEY VALUE: the original config with another value of a key.
change() {
    python3 -c 'import json, sys
config = json.load(open(sys.argv[1]))
config[sys.argv[3]] = json.loads(sys.argv[4])
json.dump(config, open(sys.argv[2], "w"))' "$FULL/$model/$folder/config.json" \
        "$T/$model/$folder/config.json" "$1" "$2"
}
# no KEY VALUE [TEXT]: generating is refused. TEXT: the value in the message.
no() {
    change "$1" "$2"
    refused "$1 $2" 1 "$model/$folder.*: \"$1\" is ${3-$2}, which is not supported; only its" \
        generate --model "$T/$model" --prompt a --num_inference_steps 1 -q -o "$T/x.png"
}
yes() {
    change "$1" "$2"
    try inspect --model "$T/$model"
    check "$1 $2 is the same" [ "$rc" = 0 ]
}

copy sdxl unet
no center_input_sample true
no flip_sin_to_cos false
no freq_shift 1
no only_cross_attention true
no only_cross_attention '[true, false, false]' 'a list of 3'
no mid_block_only_cross_attention true
no downsample_padding 0
no mid_block_scale_factor 2
no reverse_transformer_layers_per_block '[[1, 2], [1, 2], [1, 2]]' 'a list of 3'
no encoder_hid_dim 32
no encoder_hid_dim_type '"text_proj"'
no dual_cross_attention true
no class_embed_type '"timestep"'
no num_class_embeds 10
no class_embeddings_concat true
no resnet_skip_time_act true
no resnet_out_scale_factor 1.5
no time_embedding_type '"fourier"'
no time_embedding_dim 64
no time_embedding_act_fn '"gelu"'
no timestep_post_act '"silu"'
no conv_in_kernel 5
no conv_out_kernel 1
no attention_type '"gated"'
no cross_attention_norm '"layer_norm"'
yes only_cross_attention '[false, false, false]'
yes resnet_out_scale_factor 1
yes class_embed_type null
yes freq_shift 0.0
done_testing
