"""Small random upscalers, an image, and the images that PyTorch enlarges with them.

upscaler/NAME.safetensors has the tensors of a network of the ESRGAN family under the names of its
published files: RRDBNet of Real-ESRGAN (x1, x2, x4), of the two forms of ESRGAN's files, and
SRVGGNetCompact. upscaler/golden.safetensors has "image" [h,w,3] of bytes, and for each network
"NAME", the enlarged image before it is rounded, F32 [H,W,3]. image.png is the image.
"""
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save_file
from torch import nn

H, W = 11, 14
NEW = ("conv_first", "body.%d.rdb%d.conv%d", "conv_body", "conv_up%d", "conv_hr", "conv_last")
TRUNK = ("conv_first", "RRDB_trunk.%d.RDB%d.conv%d", "trunk_conv", "upconv%d", "HRconv",
         "conv_last")


def conv(i, o):
    return nn.Conv2d(i, o, 3, 1, 1)


class Dense(nn.Module):
    """Five convolutions, each of which reads the input and all results before its own."""

    def __init__(self, width, growth):
        super().__init__()
        self.convs = nn.ModuleList(conv(width + k * growth, growth if k < 4 else width)
                                   for k in range(5))

    def forward(self, x):
        seen = x
        for layer in self.convs[:4]:
            seen = torch.cat((seen, F.leaky_relu(layer(seen), 0.2)), 1)
        return x + 0.2 * self.convs[4](seen)


class Rrdb(nn.Module):
    def __init__(self, width, growth, blocks, ups, cell):
        super().__init__()
        self.cell = cell
        self.first, self.body = conv(3 * cell ** 2, width), conv(width, width)
        self.blocks = nn.ModuleList(nn.ModuleList(Dense(width, growth) for _ in range(3))
                                    for _ in range(blocks))
        self.ups = nn.ModuleList(conv(width, width) for _ in range(ups))
        self.hr, self.last = conv(width, width), conv(width, 3)

    def forward(self, x):
        first = self.first(F.pixel_unshuffle(x, self.cell))
        h = first
        for block in self.blocks:
            y = h
            for part in block:
                y = part(y)
            h = h + 0.2 * y
        h = first + self.body(h)
        for up in self.ups:
            h = F.leaky_relu(up(F.interpolate(h, scale_factor=2, mode="nearest")), 0.2)
        return self.last(F.leaky_relu(self.hr(h), 0.2))

    def named(self, names):
        first, dense, body, up, hr, last = names
        layers = {first: self.first, body: self.body, hr: self.hr, last: self.last}
        for b, block in enumerate(self.blocks):
            for p, part in enumerate(block, 1):
                for k, layer in enumerate(part.convs, 1):
                    layers[dense % (b, p, k)] = layer
        for i, layer in enumerate(self.ups):
            layers[up % i if up == "model.%d" else up % (i + 1)] = layer
        return layers


class Compact(nn.Module):
    def __init__(self, width, convs, scale):
        super().__init__()
        self.scale = scale
        self.body = nn.ModuleList([conv(3, width), nn.PReLU(width)])
        for _ in range(convs):
            self.body += [conv(width, width), nn.PReLU(width)]
        self.body.append(conv(width, 3 * scale ** 2))

    def forward(self, x):
        h = x
        for layer in self.body:
            h = layer(h)
        return F.pixel_shuffle(h, self.scale) + F.interpolate(x, scale_factor=self.scale,
                                                              mode="nearest")


def old_names(net):
    """ESRGAN's first files number the layers of a sequence, with enlargements and activations."""
    n, ups = len(net.blocks), len(net.ups)
    layers = net.named(("model.0", "model.1.sub.%d.RDB%d.conv%d.0", f"model.1.sub.{n}", "up%d",
                        f"model.{2 + 3 * ups}", f"model.{4 + 3 * ups}"))
    return {(f"model.{3 * int(k[2:])}" if k.startswith("up") else k): v for k, v in layers.items()}


def fill(net, seed):
    g = torch.Generator().manual_seed(seed)
    for p in net.parameters():
        size = (1 / p[0].numel()) ** 0.5 if p.dim() > 1 else 0.2
        p.data = torch.randn(p.shape, generator=g) * size
    if isinstance(net, Rrdb):
        net.last.bias.data += 0.4       # most pixels are then between black and white
    return net.eval()


def tensors(layers):
    return {f"{name}.{kind}": t.contiguous() for name, layer in layers.items()
            for kind, t in layer.state_dict().items()}


def networks():
    """Name: (network, its layers by name)."""
    rrdb = {"x4": (8, 4, 2, 2, 1), "x2": (6, 3, 1, 2, 2), "x1": (6, 4, 1, 2, 4)}
    made = {name: fill(Rrdb(*how), i) for i, (name, how) in enumerate(rrdb.items())}
    found = {name: (net, net.named(NEW)) for name, net in made.items()}
    trunk, old, one = (fill(Rrdb(6, 4, 1, ups, 1), 7 + ups) for ups in (2, 1, 0))
    found["trunk"] = trunk, trunk.named(TRUNK)
    found["old-x2"], found["old-x1"] = (old, old_names(old)), (one, old_names(one))
    for name, how in {"compact-x4": (8, 2, 4), "compact-x2": (6, 3, 2)}.items():
        net = fill(Compact(*how), len(name))
        found[name] = net, {f"body.{i}": layer for i, layer in enumerate(net.body)}
    return found


def make(names, options):
    folder = options.out / "upscaler"
    folder.mkdir(exist_ok=True)
    g = torch.Generator().manual_seed(5)
    image = torch.randint(0, 256, (H, W, 3), generator=g, dtype=torch.uint8)
    Image.fromarray(image.numpy()).save(folder / "image.png")
    out = {"image": image}
    x = (image.float() / 255).permute(2, 0, 1)[None]
    with torch.no_grad():
        for name, (net, layers) in networks().items():
            cell = getattr(net, "cell", 1)
            padded = F.pad(x, (0, -W % cell, 0, -H % cell), mode="reflect")
            y = net(padded)
            scale = y.shape[-1] // padded.shape[-1]
            out[name] = y[0, :, :H * scale, :W * scale].permute(1, 2, 0).contiguous()
            save_file(tensors(layers), folder / f"{name}.safetensors")
    save_file(out, folder / "golden.safetensors")
